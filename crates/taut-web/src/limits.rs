use taut_time::Duration;

/// What a client may take of the server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Clients at once, over all endpoints.
    pub clients: usize,
    /// Bytes of a request's line and fields; at least 1.
    pub head_bytes: usize,
    /// Fields of a request.
    pub fields: usize,
    /// Longest wait for a whole head, from the connection's begin or the end of the last answer.
    pub head_time: Duration,
    /// Longest wait for room to write into.
    pub stall: Duration,
    /// Longest life of a connection.
    pub connection: Duration,
    /// How long answers may go on when the server stops.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 256,
            head_bytes: 16 << 10,
            fields: 64,
            head_time: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            connection: Duration::from_secs(3600),
            grace: Duration::from_secs(10),
        }
    }
}
