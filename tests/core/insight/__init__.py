"""Tests of insight."""
