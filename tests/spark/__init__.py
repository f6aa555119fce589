"""Tests of headrace on Spark. Those that use the fixture `spark` share one session; see conftest."""
