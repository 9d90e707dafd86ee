/// How the settings of TLS are written where the user gave them, so that errors can name them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wording {
    /// Options of a command: `--ca FILE`.
    Options,
    /// Settings in an address: `ca=PATH`.
    Address,
}

impl Wording {
    /// The setting's name.
    pub(super) fn name(self, setting: &str) -> String {
        match self {
            Self::Options => format!("--{setting}"),
            Self::Address => format!("{setting}="),
        }
    }

    /// The same with a file.
    pub(super) fn with_file(self, setting: &str) -> String {
        match self {
            Self::Options => format!("--{setting} FILE"),
            Self::Address => format!("{setting}=PATH"),
        }
    }
}
