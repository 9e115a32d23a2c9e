"""Attacks on stores: crashes, power cuts, full disks, damage and strange bytes. Never installed."""
