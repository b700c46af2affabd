"""What every program needs: flags, output, logs and signals."""
