//! POSIX asynchronous I/O over io_uring.
