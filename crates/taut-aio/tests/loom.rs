//! The lock-free parts under the model checker: every interleaving of a few threads, within `LOOM_MAX_PREEMPTIONS`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p taut-aio --test loom --release`
#![cfg(loom)]

use std::cell::Cell;

use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use loom::sync::{Arc, Notify};
use loom::thread;
use taut_aio::lockfree::announcement::{Announcement, Wait};
use taut_aio::lockfree::completions::{Completed, Completions};
use taut_aio::lockfree::in_flight::InFlight;
use taut_aio::lockfree::inbox::{Inbox, Sleep};
use taut_aio::lockfree::kept::Kept;
use taut_aio::lockfree::windows::Windows;

/// Letters of the model: their address is made up, their links are in an array.
struct Letters {
    links: Vec<AtomicUsize>,
}

impl Letters {
    fn new(count: usize) -> Self {
        Self { links: (0..count).map(|_| AtomicUsize::new(0)).collect() }
    }

    /// Letter 0 has address 8, as an aligned one would.
    fn address(index: usize) -> usize {
        (index + 1) * 8
    }

    fn link(&self, address: usize) -> &AtomicUsize {
        &self.links[address / 8 - 1]
    }

    /// What a taken stack holds, the newest first.
    fn walk(&self, mut top: usize) -> Vec<usize> {
        let mut found = Vec::new();
        while top != 0 {
            found.push(top / 8 - 1);
            top = self.link(top).load(Ordering::Relaxed);
        }
        found
    }
}

/// What was pushed is taken once, and each pusher's letters in their order.
#[test]
fn every_letter_arrives_once() {
    loom::model(|| {
        let shared = Arc::new((Inbox::new(), Letters::new(3)));
        let other = Arc::clone(&shared);
        let pusher = thread::spawn(move || {
            let (inbox, letters) = &*other;
            for index in [0, 1] {
                let address = Letters::address(index);
                let _ = inbox.push(address, letters.link(address), || true);
            }
        });
        let (inbox, letters) = &*shared;
        let mut taken = letters.walk(inbox.take());
        let address = Letters::address(2);
        let _ = inbox.push(address, letters.link(address), || true);
        pusher.join().unwrap();
        let mut rest = letters.walk(inbox.take());
        // The newest are first within each take.
        taken.reverse();
        rest.reverse();
        taken.extend(rest);
        let order: Vec<usize> = taken.iter().copied().filter(|&index| index < 2).collect();
        assert_eq!(order, [0, 1]);
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2]);
    });
}

/// A fork by a signal handler between the last look and the push: the child gets none of it, whether the parent's I/O
/// thread slept or not.
#[test]
fn what_a_fork_interrupts_is_not_pushed() {
    for was_asleep in [false, true] {
        loom::model(move || {
            let (inbox, letters) = (Inbox::new(), Letters::new(2));
            assert!(!was_asleep || inbox.fall_asleep());
            let looks = Cell::new(0);
            let is_current = || {
                looks.set(looks.get() + 1);
                if looks.get() == 1 {
                    inbox.reset();
                }
                looks.get() == 1
            };
            let [parents, childs] = [0, 1].map(Letters::address);
            assert!(inbox.push(parents, letters.link(parents), is_current).is_none());
            assert!(inbox.is_empty() && inbox.take() == 0);
            assert!(inbox.push(childs, letters.link(childs), || true).is_none());
            assert_eq!(letters.walk(inbox.take()), [1]);
            assert!(inbox.fall_asleep() && inbox.is_empty());
        });
    }
}

/// A fork between the look and the sleep: nobody would wake the child.
#[test]
fn a_fork_keeps_from_sleep() {
    loom::model(|| {
        let announcement = Announcement::new();
        let has_forked = Cell::new(false);
        let sleep = |word: &AtomicU32, value| {
            announcement.reset();
            has_forked.set(true);
            assert_ne!(word.load(Ordering::SeqCst), value);
            Wait::Done
        };
        assert_eq!(announcement.wait(|| has_forked.get().then_some(()), sleep), Ok(()));
    });
}

/// The taker never sleeps on a letter: either it sees it, or the pusher wakes it.
#[test]
fn nobody_sleeps_on_a_letter() {
    loom::model(|| {
        let shared = Arc::new((Inbox::new(), Letters::new(2), AtomicUsize::new(0)));
        let pushers: Vec<_> = (0..2)
            .map(|index| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (inbox, letters, woken) = &*shared;
                    let address = Letters::address(index);
                    if let Some(sleep) = inbox.push(address, letters.link(address), || true) {
                        woken.fetch_add(1, Ordering::SeqCst);
                        inbox.has_ended(sleep);
                    }
                })
            })
            .collect();
        let (inbox, letters, woken) = &*shared;
        let first = letters.walk(inbox.take()).len();
        let slept = inbox.fall_asleep();
        for pusher in pushers {
            pusher.join().unwrap();
        }
        let woken = woken.load(Ordering::SeqCst);
        let second = letters.walk(inbox.take()).len();
        assert_eq!(first + second, 2);
        // Asleep and something came: somebody had to wake it. Awake: nobody.
        assert_eq!(woken > 0, slept && second > 0);
    });
}

/// A signal handler that interrupts a push before it has woken the taker may push itself and wait
/// for what it has pushed.
#[test]
fn a_handler_need_not_wait_for_whom_it_interrupts() {
    loom::model(|| interrupt(false));
}

/// The same whatever another thread does.
#[test]
fn a_handler_need_not_wait_for_anybody() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| interrupt(true));
}

fn interrupt(is_crowded: bool) {
    let shared = Arc::new((Inbox::new(), Letters::new(3), Notify::new(), Notify::new()));
    let push = |inbox: &Inbox, letters: &Letters, index| {
        let address = Letters::address(index);
        inbox.push(address, letters.link(address), || true)
    };
    let wake = |inbox: &Inbox, bell: &Notify, sleep: Option<Sleep>| {
        if let Some(sleep) = sleep {
            bell.notify();
            inbox.has_ended(sleep);
        }
    };
    let other = Arc::clone(&shared);
    let interrupted = thread::spawn(move || {
        let (inbox, letters, bell, done) = &*other;
        let first = push(inbox, letters, 0);
        // The handler.
        wake(inbox, bell, push(inbox, letters, 1));
        done.wait();
        // It has returned.
        wake(inbox, bell, first);
    });
    let other = Arc::clone(&shared);
    let beside = is_crowded.then(|| {
        thread::spawn(move || {
            let (inbox, letters, bell, _) = &*other;
            wake(inbox, bell, push(inbox, letters, 2));
        })
    });
    let (inbox, letters, bell, done) = &*shared;
    let mut left = if is_crowded { 3 } else { 2 };
    while left > 0 {
        for letter in letters.walk(inbox.take()) {
            left -= 1;
            if letter == 1 {
                done.notify();
            }
        }
        if left > 0 && inbox.fall_asleep() {
            bell.wait();
        }
    }
    interrupted.join().unwrap();
    beside.map(|beside| beside.join().unwrap());
}

/// Who waits for something is woken when it happens.
#[test]
fn no_announcement_is_missed() {
    loom::model(|| {
        let shared = Arc::new((Announcement::new(), AtomicBool::new(false)));
        let other = Arc::clone(&shared);
        let announcer = thread::spawn(move || {
            let (announcement, done) = &*other;
            done.store(true, Ordering::Release);
            announcement.announce(|_| {});
        });
        let (announcement, done) = &*shared;
        let sleep = |word: &AtomicU32, value: u32| {
            // futex(2): back at once when the value is another.
            while word.load(Ordering::SeqCst) == value {
                thread::yield_now();
            }
            Wait::Done
        };
        let found = announcement.wait(|| done.load(Ordering::Acquire).then_some(()), sleep);
        assert_eq!(found, Ok(()));
        announcer.join().unwrap();
    });
}

fn completed(request: usize) -> Completed {
    Completed { request, result: -(request as isize) }
}

/// Two takers get each request once, in order, and whole.
#[test]
fn every_request_is_taken_once() {
    loom::model(|| {
        let completions = Arc::new(Completions::new(2));
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let completions = Arc::clone(&completions);
                thread::spawn(move || completions.take())
            })
            .collect();
        for request in [1, 2] {
            let position = completions.reserve(completed(request));
            completions.publish(position);
        }
        let mut taken: Vec<Completed> = takers.into_iter().filter_map(|taker| taker.join().unwrap()).collect();
        while let Some(rest) = completions.take() {
            taken.push(rest);
        }
        assert!(taken.iter().all(|one| one.result == -(one.request as isize)));
        taken.sort_unstable_by_key(|one| one.request);
        assert_eq!(taken, [completed(1), completed(2)]);
    });
}

/// A request is collected by aio_return or by aio_waitcomplete, and by one of them alone, whatever comes between.
#[test]
fn struck_out_or_taken_but_not_both() {
    loom::model(|| {
        let completions = Arc::new(Completions::new(2));
        let position = completions.reserve(completed(1));
        let other = Arc::clone(&completions);
        // The block says that it is complete from here on: its owner may collect it.
        let owner = thread::spawn(move || {
            other.strike_out(position, 1);
            // Whatever comes now at the same address is another request.
            other.take()
        });
        completions.publish(position);
        let next = completions.reserve(completed(2));
        completions.publish(next);
        let mut taken: Vec<usize> = owner.join().unwrap().into_iter().map(|one| one.request).collect();
        while let Some(rest) = completions.take() {
            taken.push(rest.request);
        }
        assert_eq!(taken, [2]);
    });
}

/// The oldest is lost when there is no room, and never seen torn.
#[test]
fn what_is_overwritten_is_whole_or_gone() {
    loom::model(|| {
        let completions = Arc::new(Completions::new(1));
        let first = completions.reserve(completed(1));
        completions.publish(first);
        let other = Arc::clone(&completions);
        let taker = thread::spawn(move || other.take());
        let second = completions.reserve(completed(2));
        completions.publish(second);
        let taken = taker.join().unwrap();
        let rest = completions.take();
        for one in taken.iter().chain(&rest) {
            assert_eq!(one.result, -(one.request as isize));
        }
        assert!(taken.map(|one| one.request) != rest.map(|one| one.request));
        assert!([taken, rest].into_iter().flatten().any(|one| one.request == 2));
    });
}

/// Who finds nothing in flight on a descriptor finds the results of all that was; and no count is lost.
#[test]
fn nothing_in_flight_means_that_all_is_stored() {
    loom::model(|| {
        let shared = Arc::new((InFlight::<2>::new(), AtomicU32::new(0)));
        shared.0.enter(1);
        let other = Arc::clone(&shared);
        let submitter = thread::spawn(move || {
            let (in_flight, _) = &*other;
            in_flight.enter(1);
            in_flight.leave(1);
        });
        let other = Arc::clone(&shared);
        let worker = thread::spawn(move || {
            let (in_flight, result) = &*other;
            result.store(7, Ordering::Relaxed);
            in_flight.leave(1);
        });
        let (in_flight, result) = &*shared;
        if !in_flight.any(1) {
            assert_eq!(result.load(Ordering::Relaxed), 7);
        }
        submitter.join().unwrap();
        worker.join().unwrap();
        assert!(!in_flight.any(1) && !in_flight.any(0) && !in_flight.any(99));
    });
}

/// A fork forgets all counts, in whatever moment of a submission it comes; what is forgotten is not counted down.
#[test]
fn what_a_fork_forgot_counts_nothing() {
    loom::model(|| {
        let shared = Arc::new(InFlight::<1>::new());
        let other = Arc::clone(&shared);
        let submitter = thread::spawn(move || {
            other.enter(0);
            other.leave(0);
        });
        // The child's memory is a copy at any moment: here it is the same, at that moment.
        shared.reset();
        submitter.join().unwrap();
        assert!(!shared.any(0));
        shared.enter(0);
        assert!(shared.any(0));
        shared.leave(0);
        assert!(!shared.any(0));
    });
}

/// A fork finds no descriptor that is open and not known, whoever comes first; and nobody waits for ever.
#[test]
fn a_fork_finds_nobody_inside() {
    loom::model(|| {
        let shared = Arc::new((Windows::<2, 1>::new(), AtomicBool::new(false), AtomicBool::new(false)));
        let other = Arc::clone(&shared);
        let wait = || {
            thread::yield_now();
            true
        };
        let opener = thread::spawn(move || {
            let (windows, open, known) = &*other;
            let place = windows.enter(1, wait);
            open.store(true, Ordering::Relaxed);
            known.store(true, Ordering::Relaxed);
            windows.leave(1, place);
        });
        let (windows, open, known) = &*shared;
        windows.begin_fork(2, wait);
        assert_eq!(open.load(Ordering::Relaxed), known.load(Ordering::Relaxed));
        windows.end_fork(2);
        opener.join().unwrap();
    });
}

/// A handler forks that has interrupted its own thread inside: it does not wait for itself, and the child begins anew.
#[test]
fn who_is_inside_may_fork() {
    loom::model(|| {
        let windows = Windows::<2, 1>::new();
        let never = || -> bool { panic!("waits for itself") };
        let place = windows.enter(1, never);
        windows.begin_fork(1, never);
        // Another handler, between the handlers of the fork.
        let within = windows.enter(1, never);
        windows.leave(1, within);
        windows.reset();
        windows.leave(1, place);
        windows.begin_fork(2, never);
        windows.end_fork(2);
        // Who has left a window by siglongjmp holds a fork up once.
        let _ = windows.enter(3, never);
        let mut turns = 0;
        windows.begin_fork(2, || {
            turns += 1;
            turns < 3
        });
        windows.end_fork(2);
        windows.begin_fork(2, never);
        // So does a fork that waits for somebody else.
        turns = 0;
        let place = windows.enter(1, || {
            turns += 1;
            turns < 3
        });
        windows.leave(1, place);
        let place = windows.enter(3, never);
        windows.leave(3, place);
        windows.end_fork(2);
        windows.begin_fork(2, never);
        turns = 0;
        let _ = windows.enter(1, || {
            turns += 1;
            turns < 3
        });
        assert_eq!(turns, 3, "another fork is waited for");
    });
}

/// The file of entry 0 and that of entry 5, which the I/O thread keeps one after the other under number 1.
const FILES: [(u64, u32); 2] = [(700, 0), (800, 5)];

/// Who is told that a file is at hand finds it there until its operation has arrived, and not another one, whatever
/// comes between.
#[test]
fn what_is_pinned_stays_until_it_has_arrived() {
    loom::model(|| {
        let shared = Arc::new((Kept::<2>::new(), [AtomicBool::new(true), AtomicBool::new(false)], AtomicU32::new(0)));
        let (kept, open, arrivals) = &*shared;
        assert!(kept.keep(1, FILES[0].0, FILES[0].1));
        let submitters: Vec<_> = [0, 1]
            .map(|wanted: usize| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (kept, open, arrivals) = &*shared;
                    let (identity, entry) = FILES[wanted];
                    let Some(pinned) = kept.pin(1, identity, || true) else { return };
                    assert_eq!(pinned, entry);
                    assert!(open[wanted].load(Ordering::SeqCst));
                    arrivals.fetch_add(if wanted == 0 { 1 } else { 1 << 8 }, Ordering::SeqCst);
                })
            })
            .into();
        if kept.release(1, arrivals.load(Ordering::SeqCst)) {
            open[0].store(false, Ordering::SeqCst);
            open[1].store(true, Ordering::SeqCst);
            assert!(kept.keep(1, FILES[1].0, FILES[1].1));
        }
        for submitter in submitters {
            submitter.join().unwrap();
        }
        let arrived = arrivals.load(Ordering::SeqCst);
        let arrived = if open[1].load(Ordering::SeqCst) { arrived >> 8 } else { arrived };
        assert!(kept.settle(1, arrived) && kept.release(1, 0), "nothing else was pinned");
        assert_eq!(kept.pin(1, FILES[0].0, || true), None);
    });
}

/// When the number means another file, the I/O thread learns how many operations it has yet to expect.
#[test]
fn none_that_is_pinned_is_forgotten() {
    loom::model(|| {
        let shared = Arc::new(Kept::<2>::new());
        assert!(shared.keep(1, 700, 3));
        let submitters: Vec<_> = (0..2)
            .map(|_| {
                let kept = Arc::clone(&shared);
                thread::spawn(move || u32::from(kept.pin(1, 700, || true) == Some(3)))
            })
            .collect();
        let ended = shared.end(1);
        assert!(shared.keep(1, 700, 4));
        let pinned: u32 = submitters.into_iter().map(|submitter| submitter.join().unwrap()).sum();
        assert_eq!(pinned, ended);
    });
}

/// In the child of a fork by a handler that interrupts it, nothing is pinned.
#[test]
fn what_a_fork_interrupts_is_not_pinned() {
    loom::model(|| {
        let shared = Arc::new((Kept::<2>::new(), AtomicU32::new(0)));
        assert!(shared.0.keep(1, 700, 3));
        let other = Arc::clone(&shared);
        // The child goes on with what the parent had begun: here another thread does.
        let submitter = thread::spawn(move || {
            let (kept, epoch) = &*other;
            kept.pin(1, 700, || epoch.load(Ordering::SeqCst) == 0)
        });
        let (kept, epoch) = &*shared;
        kept.reset();
        epoch.store(1, Ordering::SeqCst);
        assert!(kept.keep(1, 700, 6));
        assert_ne!(submitter.join().unwrap(), Some(6));
        assert!(kept.release(1, 0), "nothing of this life was pinned");
    });
}
