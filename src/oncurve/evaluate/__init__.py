"""Measure a frozen policy: estimators and their uncertainty."""
