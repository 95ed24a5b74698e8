"""Brings model files onto this machine: one file per source, one resumable file for all."""
