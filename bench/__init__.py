"""Speed and scale: `python -m bench` against others, the other files one question each."""
