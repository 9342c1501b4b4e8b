//! What is printed: variables, quoting and formats.
