use std::io;

/// Why a file can't be read as a capture of packets.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading failed. The message has the error in it, so it is no source that would be told once more.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// It ends before the end of its header, or its compression does.
    #[error("is cut off in its header; was it still being written, or copied in part?")]
    CutOff,
    /// There is nothing in it.
    #[error("is empty: a capture has a header of at least 24 bytes; was it still being written?")]
    Empty,
    /// It is of a form that is known and not read.
    #[error("is {form}, which is not explained yet; {instead}")]
    NotYet {
        /// What it is.
        form: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// It is a log of QUIC that calls itself something that is not read.
    #[error("is a log of QUIC (qlog) of another {what} than are read: {found}; write qlog 0.3 or 0.4")]
    Qlog {
        /// Version, schema or format.
        what: &'static str,
        /// What it says, cut and without what steers a terminal.
        found: String,
    },
    /// It is a log of QUIC whose events are far from the order of time.
    #[error(
        "is a log of QUIC (qlog) whose events are not in the order of time: event {place} is {late_ms:.3} ms earlier \
         than one that stands a thousand before it; sort its events by their times"
    )]
    Disordered {
        /// Number of the event, from 1.
        place: u64,
        /// In milliseconds.
        late_ms: f64,
    },
    /// It is a zip archive, and none of its files is a capture by its name.
    #[error("is a zip archive without a log of Bluetooth or a capture in it; it holds {holds}{advice}")]
    NoMember {
        /// Names of files in it, and how many there are beyond those.
        holds: String,
        /// What to do, where that is known.
        advice: &'static str,
    },
    /// Its first bytes are those of no capture.
    #[error(
        "is no capture of packets: it begins with {begin}; pcap, pcapng, btsnoop and snoop are \
         read, also compressed by gzip or zstd, or in a zip archive, and qlog, and what taut trace --events wrote"
    )]
    Unknown {
        /// The first bytes, in hexadecimal.
        begin: String,
    },
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::CutOff } else { Self::Read(error) }
    }
}
