//! Group and endpoint sockets.
