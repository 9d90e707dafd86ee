//! What traced processes are called.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs;
use std::time::Duration;

use taut_source::trace::{Tracer, has_kernels_numbers};
use taut_time::Instant;

use crate::output;

/// For so long after it was met a process is looked at again: a shell that starts a program by exec(2) has its name
/// soon.
const YOUTH: Duration = Duration::from_secs(2);
/// More are not traced at once.
const MOST: usize = 4096;
/// Of processes that ended so many names are kept that came last, and at most as many before them.
const MOST_ENDED: usize = 16_384;

/// Names of the processes met so far. Of a number that was used again it is the name of the last process.
#[derive(Default)]
pub(super) struct Names {
    /// Of those that were there when last looked at.
    there: HashMap<u32, String>,
    /// Those of processes that ended, as they were called then.
    ended: [HashMap<u32, String>; 2],
    /// Those met in the last seconds, and when.
    young: HashMap<u32, Instant>,
}

impl Names {
    pub(super) fn learn(&mut self, tracer: &mut Tracer, now: Instant) {
        let (ended, new) = (tracer.take_ended(), tracer.take_new_processes());
        // The numbers are the kernel's, and another process may have one of them here.
        let may_look = has_kernels_numbers();
        self.hear(ended, new, now, |pid| if may_look { name_of(pid.cast_signed()) } else { None });
    }

    /// `ended` has a name for each thread that ended, `new` each process that was met, and `look` finds the name of one
    /// that is there.
    fn hear(&mut self, ended: Vec<(u32, String)>, new: Vec<u32>, now: Instant, look: impl Fn(u32) -> Option<String>) {
        for pid in new {
            self.young.entry(pid).or_insert(now);
        }
        // Of each process the last one.
        let ended: HashMap<u32, String> = ended.into_iter().collect();
        for (pid, name) in ended {
            // It may go on, and be called otherwise later.
            match look(pid) {
                Some(name) => self.is_called(pid, &name, &look),
                None => self.has_ended(pid, with_number(&name, pid)),
            }
        }
        let young: Vec<u32> = self.young.keys().copied().collect();
        for pid in young {
            if let Some(name) = look(pid) {
                self.is_called(pid, &name, &look);
            }
        }
        self.young.retain(|_, met| now.saturating_since(*met) < YOUTH);
    }

    fn is_called(&mut self, pid: u32, name: &str, look: impl Fn(u32) -> Option<String>) {
        self.ended.iter_mut().for_each(|ended| {
            ended.remove(&pid);
        });
        if self.there.len() >= MOST && !self.there.contains_key(&pid) {
            let gone: Vec<(u32, String)> = self.there.extract_if(|pid, _| look(*pid).is_none()).collect();
            gone.into_iter().for_each(|(pid, name)| self.has_ended(pid, name));
        }
        self.there.insert(pid, with_number(name, pid));
    }

    fn has_ended(&mut self, pid: u32, name: String) {
        self.there.remove(&pid);
        // What has its number next is not this one.
        self.young.remove(&pid);
        if self.ended[0].len() >= MOST_ENDED {
            self.ended.swap(0, 1);
            self.ended[0].clear();
        }
        self.ended[0].insert(pid, name);
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = i32> {
        self.there.keys().map(|pid| pid.cast_signed())
    }

    pub(super) fn of(&self, pid: u32) -> String {
        let known = [&self.there, &self.ended[0], &self.ended[1]].into_iter().find_map(|names| names.get(&pid));
        known.cloned().unwrap_or_else(|| pid.to_string())
    }
}

/// What a process is called that is there.
fn name_of(pid: i32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).into_owned())
}

/// `nginx (4711)`
pub(super) fn named(pid: i32) -> String {
    with_number(&name_of(pid).unwrap_or_default(), pid)
}

fn with_number(name: &str, pid: impl Display) -> String {
    let name = output::printable(name.trim_end());
    if name.is_empty() { pid.to_string() } else { format!("{name} ({pid})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn ended(pid: u32, name: &str) -> Vec<(u32, String)> {
        vec![(pid, name.to_owned())]
    }

    #[test]
    fn a_name_is_that_of_the_process_and_not_of_its_first_thread_to_end() {
        let mut names = Names::default();
        let is = |name: &'static str| move |_: u32| Some(name.to_owned());
        names.hear(Vec::new(), vec![7], at(0), is("sh\n"));
        assert_eq!(names.of(7), "sh (7)");
        // A worker ends, and then the process becomes another program.
        names.hear(ended(7, "sh"), Vec::new(), at(10), is("sh\n"));
        names.hear(Vec::new(), Vec::new(), at(20), is("server\n"));
        assert_eq!(names.of(7), "server (7)");
        names.hear(ended(7, "renamed"), Vec::new(), at(5000), is("renamed"));
        assert_eq!((names.of(7), names.processes().collect::<Vec<_>>()), ("renamed (7)".to_owned(), vec![7]));
        // Later nobody looks but at its end.
        names.hear(ended(7, "last"), Vec::new(), at(6000), |_| None);
        assert_eq!((names.of(7), names.processes().count()), ("last (7)".to_owned(), 0));
        // Its number is used again.
        names.hear(Vec::new(), vec![7], at(7000), is("other"));
        assert_eq!(names.of(7), "other (7)");
        assert_eq!(names.of(8), "8");
    }

    /// One that begins and ends between two looks has the name that it had; what has its number then is not asked.
    #[test]
    fn what_has_ended_is_looked_at_no_more() {
        let mut names = Names::default();
        names.hear(ended(7, "curl"), vec![7], at(0), |_| None);
        names.hear(Vec::new(), Vec::new(), at(10), |_| Some("stranger".to_owned()));
        assert_eq!(names.of(7), "curl (7)");
    }

    #[test]
    fn names_are_bounded_and_those_that_go_on_are_kept() {
        let mut names = Names::default();
        let look = |pid: u32| (pid < 10).then(|| "server".to_owned());
        for pid in 0..10 {
            names.hear(Vec::new(), vec![pid], at(0), look);
        }
        for pid in 10..3 * MOST_ENDED as u32 {
            names.is_called(pid, "child", look);
        }
        assert!(names.there.len() <= MOST && names.ended.iter().all(|ended| ended.len() <= MOST_ENDED));
        let last = 3 * MOST_ENDED as u32 - 1;
        assert_eq!((names.of(0), names.of(last)), ("server (0)".to_owned(), format!("child ({last})")));
        assert_eq!(names.of(10), "10", "long ago");
    }
}
