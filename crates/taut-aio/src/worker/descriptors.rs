//! What the I/O thread knows of each descriptor: which file it means, how that is held, and the
//! order of its operations.

use std::ffi::c_int;

use super::keeper::{Keeper, Stay};
use super::mounts::Mounts;
use super::order::{Class, Kind, Order};
use crate::backend::{Backend, Place};
use crate::service::Shared;
use crate::service::target::Target;
use crate::system::file::{self, FileKind};
use crate::system::own::OwnDescriptors;
use crate::system::{self, descriptor_limit};

/// How the file of an entry is held while operations are in flight on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Hold {
    /// Not at all, or by the kernel's own operations alone.
    Nothing,
    /// By a descriptor of our own.
    Own(c_int),
    /// By a place among the backend's registered files.
    Registered(u32),
    /// By the application's number: which file that means is looked at before each step.
    Number(c_int),
}

/// One open file under one number, on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Descriptor {
    pub(crate) order: Order,
    pub(crate) hold: Hold,
    kind: FileKind,
    pub(crate) identity: u64,
    /// The last read of this socket left nothing behind.
    pub(crate) emptied: bool,
    /// Its file system waits for somebody else.
    distant: bool,
    /// The number means another file by now; operations begun before go on.
    detached: bool,
    /// Whether its file is at hand for those who submit.
    stay: Stay,
}

const _: () = assert!(size_of::<Option<Descriptor>>() <= 128);

impl Descriptor {
    /// Where its next step goes, if anything holds it.
    pub(crate) const fn place(&self) -> Option<Place> {
        match self.hold {
            Hold::Nothing => None,
            Hold::Own(fd) | Hold::Number(fd) => Some(Place::Descriptor(fd)),
            Hold::Registered(slot) => Some(Place::Registered(slot)),
        }
    }

    /// Whether the kernel may make whoever tries this wait: it knows of no terminal that its write would have to.
    pub(crate) fn may_block(&self, kind: Kind) -> bool {
        self.distant || kind == Kind::Write && self.kind == FileKind::Character
    }

    /// Whether a signal ends a write that waits in the kernel.
    pub(crate) const fn may_be_interrupted(&self) -> bool {
        matches!(self.kind, FileKind::Pipe | FileKind::Character)
    }

    /// Whether its place still means its file: somebody may have closed it behind our back.
    pub(crate) fn is_there(&self) -> bool {
        match self.hold {
            Hold::Nothing => false,
            Hold::Registered(_) => true,
            Hold::Own(fd) | Hold::Number(fd) => file::means(fd, self.identity),
        }
    }
}

/// Descriptors by number.
#[derive(Debug)]
pub(crate) struct Descriptors {
    entries: Vec<Option<Descriptor>>,
    free: Vec<u32>,
    /// Entry of each number, plus one; 0 is none.
    by_fd: Vec<u32>,
    mounts: Mounts,
    keeper: Keeper,
    own: &'static OwnDescriptors,
    /// How many of the entries are held by a descriptor of our own, and how many may be: the application needs most.
    held: u32,
    most_held: u32,
    /// Of those, the ones that something else has replaced, with the identity of their file.
    replaced: Vec<(c_int, u64)>,
}

/// An entry for an operation, and what became of others on its number.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) entry: u32,
    /// An entry that lost the number meanwhile.
    pub(crate) orphaned: Option<u32>,
    /// Its file was looked at just now.
    pub(crate) fresh: bool,
}

impl Descriptors {
    pub(crate) fn new(shared: &'static Shared) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_fd: Vec::new(),
            mounts: Mounts::default(),
            keeper: Keeper::new(&shared.kept, &shared.in_flight),
            own: &shared.own,
            held: 0,
            replaced: Vec::new(),
            most_held: descriptor_limit().unsigned_abs() / 4,
        }
    }

    /// The entry for an operation that was submitted on this number and is about this file.
    ///
    /// # Errors
    /// `EBADF`: the number meant nothing. `ECANCELED`: it means another file by now, and nothing held the one it meant.
    pub(crate) fn find(&mut self, fd: c_int, target: Target, backend: &mut dyn Backend) -> Result<Found, c_int> {
        let kind = target.kind.ok_or(libc::EBADF)?;
        let number = usize::try_from(fd).map_err(|_| libc::EBADF)?;
        if let Some(entry) = target.kept {
            // Whatever the number means by now.
            let descriptor = self.entries.get_mut(entry as usize).and_then(Option::as_mut);
            // Nothing less, unless somebody wrote to the control block.
            let descriptor = descriptor.filter(|known| known.stay != Stay::No && known.identity == target.identity);
            self.keeper.arrived(&mut descriptor.ok_or(libc::ECANCELED)?.stay);
            return Ok(Found { entry, orphaned: None, fresh: true });
        }
        let mut known = self.by_fd.get(number).and_then(|entry| entry.checked_sub(1));
        if let Some(entry) = known {
            let descriptor = self.get(entry);
            let (idle, hold, stays) = (descriptor.order.is_idle(), descriptor.hold, descriptor.stay != Stay::No);
            let same =
                descriptor.kind == kind && descriptor.identity == target.identity && is_same_open_file(hold, target);
            if same && (stays || !idle) {
                self.join(entry, fd, target, backend);
                return Ok(Found { entry, orphaned: None, fresh: false });
            }
            if idle && !stays {
                let fresh = self.describe(fd, kind, target, backend)?;
                self.entries[entry as usize] = Some(fresh);
                if same {
                    self.keep(entry, fd, backend);
                }
                return Ok(Found { entry, orphaned: None, fresh: true });
            }
            if idle {
                self.forget(fd, backend);
                known = None;
            }
        }
        let fresh = self.describe(fd, kind, target, backend)?;
        if let Some(entry) = known {
            self.detach(entry);
        }
        let entry = self.insert(fresh);
        if self.by_fd.len() <= number {
            self.by_fd.resize(number + 1, 0);
        }
        self.by_fd[number] = entry + 1;
        Ok(Found { entry, orphaned: known, fresh: true })
    }

    /// An operation more on an entry with some: one hold does for all.
    fn join(&mut self, entry: u32, fd: c_int, target: Target, backend: &mut dyn Backend) {
        let Some(own) = target.own else {
            let descriptor = self.get(entry);
            if descriptor.hold == Hold::Nothing {
                descriptor.hold = Hold::Number(fd);
            }
            return;
        };
        let descriptor = self.get(entry);
        if descriptor.hold == Hold::Nothing {
            descriptor.hold = Hold::Own(own);
            self.held += 1;
        } else {
            self.close_own(own, target.identity);
        }
        self.keep(entry, fd, backend);
    }

    /// Has a file at hand from its second operation on: whoever submits the next finds it held, which saves most of
    /// what one costs.
    fn keep(&mut self, entry: u32, fd: c_int, backend: &mut dyn Backend) {
        let descriptor = self.get(entry);
        let (identity, kind) = (descriptor.identity, descriptor.kind);
        let Hold::Own(own) = descriptor.hold else { return };
        if !kind.may_be_kept() || !backend.has_places_to_spare() {
            return;
        }
        let Some(slot) = backend.register(own) else { return };
        // What is looked at must be what is held.
        let stay = if file::means(own, identity) { self.keeper.keep(fd, identity, entry) } else { Stay::No };
        if stay == Stay::No {
            backend.unregister(slot);
            return;
        }
        // The backend may have steps that go by it and that the kernel has not taken yet.
        self.replaced.push((own, identity));
        let descriptor = self.get(entry);
        (descriptor.hold, descriptor.stay) = (Hold::Registered(slot), stay);
    }

    /// Whether there are descriptors of our own that something else has replaced.
    pub(crate) fn has_replaced(&self) -> bool {
        !self.replaced.is_empty()
    }

    /// Closes those, once the kernel has taken all steps.
    pub(crate) fn close_replaced(&mut self) {
        while let Some((own, identity)) = self.replaced.pop() {
            self.held -= 1;
            self.close_own(own, identity);
        }
    }

    /// The files that were at hand and had no operation for a while are so no more.
    pub(crate) fn tick(&mut self, backend: &mut dyn Backend) {
        for entry in self.keeper.tick() {
            let Some(Some(descriptor)) = self.entries.get_mut(entry as usize) else { continue };
            if self.keeper.look(entry, &mut descriptor.stay, descriptor.order.is_idle()) {
                self.let_go(entry, backend);
            }
        }
        if self.keeper.wants_tick() {
            backend.ask_for_tick();
        }
    }

    /// The number means another file, or none.
    fn detach(&mut self, entry: u32) {
        let descriptor = at(&mut self.entries, entry);
        descriptor.detached = true;
        self.keeper.end(&mut descriptor.stay);
    }

    /// Finds out about the file of a first operation, and holds it.
    fn describe(
        &mut self,
        fd: c_int,
        kind: FileKind,
        target: Target,
        backend: &mut dyn Backend,
    ) -> Result<Descriptor, c_int> {
        let identity = target.identity;
        let mut descriptor = Descriptor {
            order: Order::new(if kind == FileKind::Socket { Class::Socket } else { Class::Stream }),
            hold: Hold::Number(fd),
            kind,
            identity,
            emptied: false,
            distant: false,
            detached: false,
            stay: Stay::No,
        };
        if let Some(own) = target.own {
            // Made by a thread with a table of descriptors to itself (unshare(2)), the number is another file's here.
            if !file::means(own, identity) {
                return Err(libc::ECANCELED);
            }
            // Of what its identity tells exactly there may be thousands.
            if kind == FileKind::Anonymous || self.held < self.most_held {
                descriptor.hold = Hold::Own(own);
                self.held += 1;
                return Ok(descriptor);
            }
            self.own.close(own);
        }
        if !kind.may_be_duplicated() {
            if let Some(slot) = backend.register(fd) {
                descriptor.hold = Hold::Registered(slot);
            }
            if kind == FileKind::Plain || file::has_offsets(fd) {
                let append = system::status_flags(fd).unwrap_or(0) & libc::O_APPEND != 0;
                descriptor.order = Order::new(Class::File { append });
            }
        }
        // Not before it is held: what is looked at must be what is held.
        match file::look_again(fd, identity) {
            Ok(meaning) if meaning.identity == identity => {
                let is_file = matches!(descriptor.order.class(), Class::File { .. });
                if is_file {
                    // It may open the list of mounts.
                    let _no_forks = self.own.keep_forks_away();
                    descriptor.distant = self.mounts.is_distant(meaning.device);
                }
                Ok(descriptor)
            }
            _ => {
                if let Hold::Registered(slot) = descriptor.hold {
                    backend.unregister(slot);
                }
                Err(libc::ECANCELED)
            }
        }
    }

    /// Forgets what the number means: it is about to be closed.
    pub(crate) fn forget(&mut self, fd: c_int, backend: &mut dyn Backend) {
        let Some(entry) = self.present(fd) else { return };
        self.detach(entry);
        if let Some(present) = usize::try_from(fd).ok().and_then(|number| self.by_fd.get_mut(number)) {
            *present = 0;
        }
        self.release(entry, backend);
    }

    /// The entry that the number has now, if any.
    pub(crate) fn present(&self, fd: c_int) -> Option<u32> {
        self.by_fd.get(usize::try_from(fd).ok()?)?.checked_sub(1)
    }

    /// The entry that the number has now, if the number still means its file: what was closed behind our back may go on
    /// while the number is another file's.
    pub(crate) fn current(&mut self, fd: c_int) -> Option<u32> {
        let entry = self.present(fd)?;
        let Descriptor { hold, kind, identity, .. } = *self.get(entry);
        let means = match hold {
            // What would go on with the number has to end in any case.
            Hold::Number(_) => true,
            Hold::Own(own) if kind == FileKind::Anonymous => file::are_same(own, fd),
            Hold::Own(_) | Hold::Registered(_) | Hold::Nothing => file::means(fd, identity),
        };
        means.then_some(entry)
    }

    /// A descriptor by its entry, which must exist.
    pub(crate) fn get(&mut self, entry: u32) -> &mut Descriptor {
        at(&mut self.entries, entry)
    }

    /// Gives back what nothing needs any more: the hold of an idle entry, and the entry when the number is not its own.
    pub(crate) fn release(&mut self, entry: u32, backend: &mut dyn Backend) {
        let descriptor = at(&mut self.entries, entry);
        if !descriptor.order.is_idle() {
            return;
        }
        let detached = descriptor.detached;
        if !self.keeper.may_go(entry, &mut descriptor.stay) {
            if self.keeper.wants_tick() {
                backend.ask_for_tick();
            }
            return;
        }
        self.let_go(entry, backend);
        if detached {
            self.entries[entry as usize] = None;
            self.free.push(entry);
        }
    }

    /// Gives the hold of a socket back whose operations the kernel has, all of them: they hold it now.
    pub(crate) fn release_begun(&mut self, entry: u32, backend: &mut dyn Backend) {
        let Some(Some(descriptor)) = self.entries.get(entry as usize) else { return };
        let is_own = matches!(descriptor.hold, Hold::Own(_));
        if is_own && descriptor.kind == FileKind::Socket && backend.holds_files() && !descriptor.order.has_waiting() {
            self.let_go(entry, backend);
        }
    }

    fn let_go(&mut self, entry: u32, backend: &mut dyn Backend) {
        let descriptor = self.get(entry);
        let identity = descriptor.identity;
        match std::mem::replace(&mut descriptor.hold, Hold::Nothing) {
            Hold::Own(own) => {
                self.held -= 1;
                self.close_own(own, identity);
            }
            Hold::Registered(slot) => backend.unregister(slot),
            Hold::Number(_) | Hold::Nothing => {}
        }
    }

    /// Closes a descriptor of our own; closed behind our back, it is somebody else's by now.
    fn close_own(&self, own: c_int, identity: u64) {
        if file::means(own, identity) {
            self.own.close(own);
        } else {
            self.own.forget(own);
        }
    }

    fn insert(&mut self, descriptor: Descriptor) -> u32 {
        if let Some(entry) = self.free.pop() {
            self.entries[entry as usize] = Some(descriptor);
            return entry;
        }
        self.entries.push(Some(descriptor));
        self.entries.len() as u32 - 1
    }
}

fn at(entries: &mut [Option<Descriptor>], entry: u32) -> &mut Descriptor {
    match &mut entries[entry as usize] {
        Some(descriptor) => descriptor,
        None => unreachable!("an entry lives as long as an operation or a number names it"),
    }
}

/// Whether an operation's file is the entry's, their identities being the same.
fn is_same_open_file(hold: Hold, target: Target) -> bool {
    match (target.kind, hold, target.own) {
        (Some(FileKind::Anonymous), Hold::Own(held), Some(own)) => file::are_same(held, own),
        _ => true,
    }
}
