use std::collections::{BTreeSet, HashMap};

/// Sockets and pipes in which something waits to be read, by the thread that reads them.
#[derive(Debug, Default)]
pub(super) struct Readers {
    reader: HashMap<u64, u32>,
    waiting: HashMap<u32, BTreeSet<u64>>,
}

impl Readers {
    /// Who is to read what waits there; nobody if nothing waits, or if its reader is not known.
    pub(super) fn set(&mut self, socket: u64, reader: Option<u32>) {
        if self.reader.get(&socket).copied() == reader {
            return;
        }
        if let Some(before) = self.reader.remove(&socket)
            && let Some(waiting) = self.waiting.get_mut(&before)
        {
            waiting.remove(&socket);
            if waiting.is_empty() {
                self.waiting.remove(&before);
            }
        }
        if let Some(reader) = reader {
            self.reader.insert(socket, reader);
            self.waiting.entry(reader).or_default().insert(socket);
        }
    }

    /// What waits for a thread to read it.
    pub(super) fn waits_for(&self, thread: u32) -> impl Iterator<Item = u64> {
        self.waiting.get(&thread).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_waits_for_its_last_reader_and_for_nobody_once_it_is_read() {
        let mut readers = Readers::default();
        let of = |readers: &Readers, thread| readers.waits_for(thread).collect::<Vec<_>>();
        for (socket, reader) in [(10, 1), (11, 1), (11, 1), (12, 2)] {
            readers.set(socket, Some(reader));
        }
        assert_eq!((of(&readers, 1), of(&readers, 2)), (vec![10, 11], vec![12]));
        readers.set(10, Some(2));
        readers.set(11, None);
        readers.set(13, None);
        assert_eq!((of(&readers, 1), of(&readers, 2), readers.waiting.len()), (vec![], vec![10, 12], 1));
    }
}
