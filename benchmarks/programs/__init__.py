"""What GPUs and TPUs would run, compiled without one."""
