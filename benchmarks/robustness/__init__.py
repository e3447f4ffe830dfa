"""Kills, full disks, damaged files, odd commands, memory and precision: nothing is lost, nobody sees a traceback."""
