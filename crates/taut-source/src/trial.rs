use std::collections::HashSet;

use crate::options::set_no_delay;
use crate::{Error, Options, Owner, Owners, SocketTable, State};

/// `TCP_NODELAY` on sockets of running programs, for a while: they have it from [`NoDelay::set`] to [`NoDelay::clear`],
/// or until this value goes.
///
/// No descriptor is kept meanwhile: a program that closes its socket closes the connection. A process that is killed
/// leaves the option set.
#[derive(Debug)]
pub struct NoDelay {
    table: SocketTable,
    set: Vec<(Owner, u32)>,
}

/// What became of the sockets that were to have it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    /// Sockets that have it now and had it not.
    pub set: usize,
    /// Those that have it anyway.
    pub had: usize,
    /// Those that are corked: to set it would send what the program holds back on purpose.
    pub corked: usize,
    /// Those that may not be changed: the right to trace the program is missing, or pidfd_getfd(2).
    pub refused: usize,
}

impl NoDelay {
    /// Opens the way to the kernel; changes nothing.
    ///
    /// # Errors
    ///
    /// When the kernel's list of sockets can't be had.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { table: SocketTable::open()?, set: Vec::new() })
    }

    /// Sets it on the open connections of these processes, or of all with this port at either end.
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
        let mut wanted = Vec::new();
        self.table.look(|socket| {
            let is_open = matches!(socket.state, State::Established | State::CloseWait);
            let is_asked = port.is_none_or(|port| socket.local.port() == port || socket.peer.port() == port);
            let owner = owners.iter().find_map(|owners| owners.of(socket.inode)).filter(|_| is_asked);
            if let Some(owner) = owner.filter(|_| is_open) {
                wanted.push((owner.clone(), socket.inode));
            }
        })?;
        let mut settings = Settings::default();
        for (owner, inode) in wanted {
            match Options::read(&owner, inode) {
                Ok(options) if options.no_delay => settings.had += 1,
                Ok(options) if options.cork => settings.corked += 1,
                Ok(_) if set_no_delay(&owner, inode, true).is_ok() => {
                    settings.set += 1;
                    self.set.push((owner, inode));
                }
                Ok(_) | Err(_) => settings.refused += 1,
            }
        }
        Ok(settings)
    }

    /// Puts back what [`NoDelay::set`] changed.
    pub fn clear(&mut self) {
        for (owner, inode) in self.set.drain(..) {
            // A socket that is gone has nothing to put back.
            let _ = set_no_delay(&owner, inode, false);
        }
    }
}

impl Drop for NoDelay {
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
        let mut trial = NoDelay::open().unwrap();
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
}
