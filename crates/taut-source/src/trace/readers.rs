use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A wait may be for other descriptors, so that the next one tells of what came. Of an arrival so many are told.
const TOLD: u8 = 200;

/// Sockets and pipes in which something waits to be read, by the thread that reads them.
#[derive(Debug, Default)]
pub(super) struct Readers {
    reader: HashMap<u64, u32>,
    waiting: ByThread,
    /// Those of them that threads may yet learn of by a wait for several descriptors, and how often.
    untold: HashMap<u32, BTreeMap<u64, u8>>,
    /// Processes whose threads read from the same sockets: what one of them learns, another one may read.
    sharing: HashSet<u32>,
}

#[derive(Debug, Default)]
struct ByThread(HashMap<u32, BTreeSet<u64>>);

impl ByThread {
    fn add(&mut self, thread: u32, socket: u64) {
        self.0.entry(thread).or_default().insert(socket);
    }

    fn remove(&mut self, thread: u32, socket: u64) {
        let Some(sockets) = self.0.get_mut(&thread) else { return };
        sockets.remove(&socket);
        if sockets.is_empty() {
            self.0.remove(&thread);
        }
    }
}

impl Readers {
    /// Who is to read what waits there; nobody if nothing waits, or if its reader is not known.
    pub(super) fn set(&mut self, socket: u64, reader: Option<u32>) {
        if self.reader.get(&socket).copied() == reader {
            return;
        }
        let mut untold = Some(TOLD);
        if let Some(before) = self.reader.remove(&socket) {
            self.waiting.remove(before, socket);
            let sockets = self.untold.get_mut(&before);
            untold = sockets.and_then(|sockets| sockets.remove(&socket));
            if self.untold.get(&before).is_some_and(BTreeMap::is_empty) {
                self.untold.remove(&before);
            }
        }
        if let Some(reader) = reader {
            self.reader.insert(socket, reader);
            self.waiting.add(reader, socket);
            if let Some(times) = untold {
                self.untold.entry(reader).or_default().insert(socket, times);
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

    /// A wait of a thread for several descriptors is over: the sockets that are new to it, and to the others of its
    /// process if these share them. `process_of` is that of each thread.
    pub(super) fn told(&mut self, thread: u32, process: u32, process_of: impl Fn(u32) -> Option<u32>) -> BTreeSet<u64> {
        let mut told = BTreeSet::new();
        let mut tell = |sockets: &mut BTreeMap<u64, u8>| {
            sockets.retain(|socket, times| {
                told.insert(*socket);
                *times -= 1;
                *times > 0
            });
            !sockets.is_empty()
        };
        if self.sharing.contains(&process) {
            let is_ours = |other: &u32| *other == thread || process_of(*other) == Some(process);
            self.untold.retain(|other, sockets| !is_ours(other) || tell(sockets));
        } else if self.untold.get_mut(&thread).is_some_and(|sockets| !tell(sockets)) {
            self.untold.remove(&thread);
        }
        told
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
    fn a_thread_learns_of_its_own_sockets_and_of_all_if_they_are_shared() {
        let processes = HashMap::from([(1, 1), (2, 1), (3, 3)]);
        let mut readers = Readers::default();
        let told = |readers: &mut Readers, thread, process| {
            readers.told(thread, process, |other| processes.get(&other).copied()).into_iter().collect::<Vec<_>>()
        };
        for (socket, reader) in [(10, 1), (11, 2), (12, 3)] {
            readers.set(socket, Some(reader));
        }
        // It still waits: that is said a few times.
        (0..TOLD).for_each(|_| assert_eq!(told(&mut readers, 1, 1), [10]));
        assert!(told(&mut readers, 1, 1).is_empty());
        // Another thread is to read it: nothing new.
        readers.set(10, Some(2));
        assert!(told(&mut readers, 1, 1).is_empty());
        // It was read, and something else came.
        readers.set(10, None);
        readers.set(10, Some(2));
        assert!(told(&mut readers, 1, 1).is_empty());
        readers.share(1);
        assert_eq!(told(&mut readers, 1, 1), [10, 11]);
        (0..TOLD).for_each(|_| assert_eq!(told(&mut readers, 3, 3), [12]));
        [10, 11].into_iter().for_each(|socket| readers.set(socket, None));
        assert!(readers.untold.is_empty());
    }
}
