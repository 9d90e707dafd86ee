/// `stream=NAME&reader=NAME&create=memory|file`: the stream of JetStream that keeps the messages.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct StreamSettings {
    pub(super) name: String,
    /// Name of the durable reader (consumer); without one the server forgets where we were.
    pub(super) reader: Option<String>,
    /// Where a stream that is not there is made.
    pub(super) create: Option<Storage>,
}

/// Where a stream keeps its messages.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Storage {
    /// In the server's memory.
    Memory,
    /// In files of the server's.
    File,
}

/// How they are written, for errors.
pub(super) const FORM: &str = "stream=NAME&reader=NAME&create=memory|file";
/// Longest name of a stream or a reader, in bytes (`JSMaxNameLen` of the server).
const MOST_NAME_BYTES: usize = 255;

impl Storage {
    /// As the server and the address have it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::File => "file",
        }
    }
}

impl StreamSettings {
    /// Takes a setting; `false` for one of another kind.
    pub(super) fn set(&mut self, name: &str, value: &str) -> bool {
        match (name, value) {
            ("stream", name) if is_name(name) => self.name = name.to_owned(),
            ("reader", name) if is_name(name) => self.reader = Some(name.to_owned()),
            ("create", "memory") => self.create = Some(Storage::Memory),
            ("create", "file") => self.create = Some(Storage::File),
            _ => return false,
        }
        true
    }

    /// What was set, if it is whole.
    pub(super) fn checked(self) -> Result<Option<Self>, &'static str> {
        match self.name.is_empty() {
            false => Ok(Some(self)),
            true if self == Self::default() => Ok(None),
            true => Err("reader= and create= go with stream=NAME"),
        }
    }

    /// As they were written.
    pub(super) fn shown(&self) -> impl Iterator<Item = String> {
        let stream = format!("stream={}", self.name);
        let reader = self.reader.as_ref().map(|name| format!("reader={name}"));
        let create = self.create.map(|storage| format!("create={}", storage.name()));
        [Some(stream), reader, create].into_iter().flatten()
    }
}

/// Whether a stream or a reader can be called so: it is a part of subjects, and of file names of the server's.
pub(super) fn is_name(name: &str) -> bool {
    (1..=MOST_NAME_BYTES).contains(&name.len())
        && name.chars().all(|c| c > ' ' && !c.is_whitespace() && !c.is_control() && !".*>/\\".contains(c))
}
