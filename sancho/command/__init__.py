"""What a script needs: first checks, command line, shell and terminal."""
