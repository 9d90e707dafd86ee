use std::collections::{BTreeSet, HashMap, HashSet};

/// Sockets and pipes in which something waits to be read, by the thread that reads them.
#[derive(Debug, Default)]
pub(super) struct Readers {
    reader: HashMap<u64, u32>,
    waiting: ByThread,
    /// Those of them that no thread has learned of by a wait for several descriptors.
    untold: ByThread,
    /// Processes whose threads read from the same sockets: what one of them learns, another one may read.
    sharing: HashSet<u32>,
}

#[derive(Debug, Default)]
struct ByThread(HashMap<u32, BTreeSet<u64>>);

impl ByThread {
    fn add(&mut self, thread: u32, socket: u64) {
        self.0.entry(thread).or_default().insert(socket);
    }

    /// Whether it was there.
    fn remove(&mut self, thread: u32, socket: u64) -> bool {
        let Some(sockets) = self.0.get_mut(&thread) else { return false };
        let was_there = sockets.remove(&socket);
        if sockets.is_empty() {
            self.0.remove(&thread);
        }
        was_there
    }
}

impl Readers {
    /// Who is to read what waits there; nobody if nothing waits, or if its reader is not known.
    pub(super) fn set(&mut self, socket: u64, reader: Option<u32>) {
        if self.reader.get(&socket).copied() == reader {
            return;
        }
        let mut is_untold = true;
        if let Some(before) = self.reader.remove(&socket) {
            self.waiting.remove(before, socket);
            is_untold = self.untold.remove(before, socket);
        }
        if let Some(reader) = reader {
            self.reader.insert(socket, reader);
            self.waiting.add(reader, socket);
            if is_untold {
                self.untold.add(reader, socket);
            }
        }
    }

    /// What waits for a thread to read it.
    pub(super) fn waits_for(&self, thread: u32) -> impl Iterator<Item = u64> {
        self.waiting.0.get(&thread).into_iter().flatten().copied()
    }

    /// Another thread of this process reads from a socket than the one before.
    pub(super) fn share(&mut self, process: u32) {
        self.sharing.insert(process);
    }

    /// A thread has learned that some descriptors are ready: the sockets that are new to it, and to the others of its
    /// process if these share them. `process_of` is that of each thread.
    pub(super) fn told(&mut self, thread: u32, process: u32, process_of: &HashMap<u32, u32>) -> BTreeSet<u64> {
        if !self.sharing.contains(&process) {
            return self.untold.0.remove(&thread).unwrap_or_default();
        }
        let is_ours = |other: &u32| *other == thread || process_of.get(other) == Some(&process);
        self.untold.0.extract_if(|other, _| is_ours(other)).flat_map(|(_, sockets)| sockets).collect()
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
        assert_eq!((of(&readers, 1), of(&readers, 2), readers.waiting.0.len()), (vec![], vec![10, 12], 1));
    }

    #[test]
    fn a_thread_learns_of_its_own_sockets_once_and_of_all_if_they_are_shared() {
        let processes = HashMap::from([(1, 1), (2, 1), (3, 3)]);
        let mut readers = Readers::default();
        let told = |readers: &mut Readers, thread, process| {
            readers.told(thread, process, &processes).into_iter().collect::<Vec<_>>()
        };
        for (socket, reader) in [(10, 1), (11, 2), (12, 3)] {
            readers.set(socket, Some(reader));
        }
        assert_eq!(told(&mut readers, 1, 1), [10]);
        // It still waits, and another thread is to read it: nothing new.
        readers.set(10, Some(2));
        assert!(told(&mut readers, 1, 1).is_empty());
        // It was read, and something else came.
        readers.set(10, None);
        readers.set(10, Some(2));
        assert!(told(&mut readers, 1, 1).is_empty());
        readers.share(1);
        assert_eq!(told(&mut readers, 1, 1), [10, 11]);
        assert_eq!(told(&mut readers, 3, 3), [12]);
        assert!(readers.untold.0.is_empty());
    }
}
