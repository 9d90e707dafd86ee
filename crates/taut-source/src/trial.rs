use std::collections::HashSet;

use rustix::io::Result as Io;

use crate::options::set_no_delay;
use crate::{Error, Options, Owner, Owners, SocketTable, State};

/// `TCP_NODELAY` on sockets of running programs, for a while: they have it from [`Trying::set`] to [`Trying::clear`],
/// or until this value goes.
///
/// No descriptor is kept meanwhile: a program that closes its socket closes the connection. A process that is killed
/// leaves the sockets changed.
#[derive(Debug)]
pub struct Trying {
    table: SocketTable,
    set: Vec<Changed>,
}

/// A socket that is changed, by its inode.
#[derive(Debug)]
struct Changed {
    owner: Owner,
    inode: u32,
}

/// What became of the sockets that were to have it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// Sockets that are changed now.
    pub set: usize,
    /// Those that have it anyway.
    pub had: usize,
    /// Those that are corked and are left alone: to change them would send what the program holds back on purpose.
    pub corked: usize,
    /// Those that may not be changed: the right to trace the program is missing, or pidfd_getfd(2).
    pub refused: usize,
}

impl Trying {
    /// Opens the way to the kernel; changes nothing.
    ///
    /// # Errors
    ///
    /// When the kernel's list of sockets can't be had.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { table: SocketTable::open()?, set: Vec::new() })
    }

    /// Changes the open connections of these processes, or all with this port at either end.
    ///
    /// # Errors
    ///
    /// When the kernel's list of sockets can't be had.
    pub fn set(&mut self, processes: &HashSet<i32>, port: Option<u16>) -> Result<Settings, Error> {
        // All processes of a large host take long.
        let owners: Vec<Owners> = match port {
            Some(_) => vec![Owners::read(None)],
            None => processes.iter().map(|&pid| Owners::read(Some(pid))).collect(),
        };
        let ours: HashSet<u32> = self.set.iter().map(|socket| socket.inode).collect();
        let mut wanted = Vec::new();
        self.table.look(|socket| {
            let is_open = matches!(socket.state, State::Established | State::CloseWait);
            let is_asked = port.is_none_or(|port| socket.local.port() == port || socket.peer.port() == port);
            let owner = owners.iter().find_map(|owners| owners.of(socket.inode)).filter(|_| is_asked);
            if let Some(owner) = owner.filter(|_| is_open && !ours.contains(&socket.inode)) {
                wanted.push(Changed { owner: owner.clone(), inode: socket.inode });
            }
        })?;
        let mut settings = Settings { set: self.set.len(), ..Settings::default() };
        for socket in wanted {
            let Ok(options) = Options::read(&socket.owner, socket.inode) else {
                settings.refused += 1;
                continue;
            };
            if options.no_delay {
                settings.had += 1;
            } else if options.cork {
                settings.corked += 1;
            } else if socket.set(true).is_ok() {
                settings.set += 1;
                self.set.push(socket);
            } else {
                settings.refused += 1;
            }
        }
        Ok(settings)
    }

    /// Puts back what [`Trying::set`] changed. Programs may have moved their sockets meanwhile, to other numbers or
    /// to other processes: those are looked for.
    pub fn clear(&mut self) {
        self.set.retain(|socket| socket.set(false).is_err());
        if self.set.is_empty() {
            return;
        }
        let mut open = HashSet::new();
        // Without the list none is known to be gone.
        let is_known = self.table.look(|socket| open.extend([socket.inode])).is_ok();
        self.set.retain(|socket| !is_known || open.contains(&socket.inode));
        if self.set.is_empty() {
            return;
        }
        let owners = Owners::read(None);
        self.set.retain_mut(|socket| {
            let Some(owner) = owners.of(socket.inode) else { return true };
            socket.owner = owner.clone();
            socket.set(false).is_err()
        });
    }

    /// How many are still changed: after [`Trying::clear`] those that could not be reached.
    pub fn stuck(&self) -> usize {
        self.set.len()
    }
}

impl Changed {
    fn set(&self, is_on: bool) -> Io<()> {
        set_no_delay(&self.owner, self.inode, is_on)
    }
}

impl Drop for Trying {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt::set_tcp_cork;

    use super::*;

    #[test]
    fn it_is_set_where_it_was_not_and_put_back_also_when_forgotten() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        let servers: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        clients[1].set_nodelay(true).unwrap();
        set_tcp_cork(&clients[2], true).unwrap();
        let of = |streams: &[TcpStream]| streams.iter().map(|one| one.nodelay().unwrap()).collect::<Vec<_>>();
        let mut trial = Trying::open().unwrap();
        let none = trial.set(&HashSet::new(), Some(1)).unwrap();
        assert_eq!(none, Settings::default());
        let settings = trial.set(&HashSet::new(), Some(address.port())).unwrap();
        assert_eq!(settings, Settings { set: 4, had: 1, corked: 1, refused: 0 });
        assert_eq!((of(&clients), of(&servers)), (vec![true, true, false], vec![true; 3]));
        trial.clear();
        assert_eq!((of(&clients), of(&servers)), (vec![false, true, false], vec![false; 3]));
        let own = HashSet::from([std::process::id() as i32]);
        assert!(trial.set(&own, None).unwrap().set >= 4);
        drop(trial);
        assert_eq!((of(&clients), of(&servers)), (vec![false, true, false], vec![false; 3]));
    }

    #[test]
    fn it_is_put_back_on_a_socket_that_was_moved_and_one_that_is_gone_is_forgotten() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let [moved, closed] = [(); 2].map(|()| TcpStream::connect(("127.0.0.1", port)).unwrap());
        let servers = [(); 2].map(|()| listener.accept().unwrap().0);
        let mut trial = Trying::open().unwrap();
        assert_eq!(trial.set(&HashSet::new(), Some(port)).unwrap().set, 4);
        let elsewhere = moved.try_clone().unwrap();
        drop(moved);
        // Reset, so that the kernel keeps nothing of it.
        rustix::net::sockopt::set_socket_linger(&closed, Some(std::time::Duration::ZERO)).unwrap();
        drop(closed);
        trial.clear();
        assert_eq!(trial.stuck(), 0);
        assert!(!elsewhere.nodelay().unwrap());
        assert!(!servers[0].nodelay().unwrap());
    }

    #[test]
    fn one_that_is_on_its_way_to_another_program_is_told_and_put_back_once_it_is_there() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let local = client.local_addr().unwrap();
        let mut trial = Trying::open().unwrap();
        assert_eq!(trial.set(&HashSet::new(), Some(local.port())).unwrap().set, 1);
        let (from, to) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [std::os::fd::AsFd::as_fd(&client)];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&from, &[std::io::IoSlice::new(b"x")], &mut ancillary, SendFlags::empty()).unwrap();
        drop(client);
        trial.clear();
        assert_eq!(trial.stuck(), 1);
        // What is left of it is ours, and not what the program had.
        assert_eq!(trial.set(&HashSet::new(), Some(local.port())).unwrap(), Settings { set: 1, ..Settings::default() });
        drop(to);
        drop(from);
        trial.clear();
        assert_eq!(trial.stuck(), 0, "it is gone with the message");
    }
}
