use std::io;
use std::process::ExitCode;

use taut_link::Fault;

/// How `taut` ends; the same for all commands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Code {
    Ok = 0,
    Failed = 1,
    Usage = 2,
    ThresholdMissed = 3,
    Missing = 4,
    Interrupted = 130,
}

/// The one place where the codes are told to the user.
pub(crate) const HELP: &str =
    "Exit codes: 0 ok, 1 failed, 2 usage, or a file to be read that is missing or of another kind, 3 a threshold of --assert or --fail-on, or a check, missed, 4 a right or device is \
missing, 130 interrupted (what was measured has been printed; what has no end of its own, such as serve, watch or a trace of a process \
without --for, ends with 0).

Endpoints: tcp://HOST:PORT (a HOST alone is tcp, port 9100), udp://HOST:PORT, unix:PATH,
unix-dgram:PATH (unix:@NAME for an abstract name), l2cap://ADDR/PSM, rfcomm://ADDR/CHANNEL (any for
ADDR to listen; ?adapter=hci1&mtu=… after it), mqtt://HOST/TOPIC?qos=1&v=5 (mqtts:// with TLS) and
nats://HOST/SUBJECT?stream=NAME (over a broker, with stream= in JetStream); for echo, pace and stream also air:SCENARIO?NAME=VALUE&…, a Bluetooth LE link in virtual time (taut air).

Examples:
  taut survey                                 what this host loses, how it is set, how fast it is
  taut serve                                  the other side of every test, on loopback
  taut echo 127.0.0.1 udp://127.0.0.1:9100    which is faster, and is the difference certain?
  taut pace --emulate-delack 56ms --nagle on  small messages every 10 ms to a peer with delayed ACKs
  taut tune tcp://127.0.0.1:9100 --workload write-write-read";

impl Code {
    /// The code for an error, by whose fault it is.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if is_broken_pipe(error) {
            return Self::Ok;
        }
        match error.downcast_ref::<taut_link::Error>() {
            Some(error) if error.is_missing_right() => Self::Missing,
            Some(error) if error.fault() == Fault::Input => Self::Usage,
            // A recording that can't be read, or is none.
            None if error.is::<taut_report::Error>() => Self::Usage,
            _ => match error.downcast_ref::<taut_capture::Error>() {
                None | Some(taut_capture::Error::Read(_)) => Self::Failed,
                // No capture, or none that is read.
                Some(_) => Self::Usage,
            },
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// Whether nobody listens where a link was to lead.
pub(crate) fn is_refused(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<taut_link::Error>() {
        Some(taut_link::Error::Io { operation: "connect to", endpoint, error }) => {
            let is_ours = ["tcp:", "udp:", "unix:", "unix-dgram:"].iter().any(|kind| endpoint.starts_with(kind));
            is_ours && matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
        }
        _ => false,
    }
}

/// Whether the reader of our stdout went away: its business, not an error.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
