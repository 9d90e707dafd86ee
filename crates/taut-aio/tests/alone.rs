//! What goes on without the I/O thread, also under the interpreter that checks each access to
//! memory: `cargo xtask miri`.
//!
//! The lock-free parts with threads as they are (tests/loom.rs has every interleaving of a few
//! steps), and the safe face with operations that were never begun.
#![cfg(not(loom))]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use taut_aio::lockfree::announcement::{Announcement, Wait};
use taut_aio::lockfree::completions::{Completed, Completions};
use taut_aio::lockfree::in_flight::InFlight;
use taut_aio::lockfree::inbox::Inbox;
use taut_aio::{CompletionQueue, Notify, Operation, OperationList, Provider};

/// Each thread's turns; the interpreter takes about a thousand times as long.
const TURNS: usize = if cfg!(miri) { 40 } else { 1000 };

/// A letter as the library's are: linked by its own memory.
#[repr(align(8))]
struct Letter {
    link: AtomicUsize,
    number: usize,
}

#[test]
fn letters_of_threads_arrive_once_and_in_order() {
    const THREADS: usize = 3;
    let letters: Vec<Vec<Letter>> =
        (0..THREADS).map(|_| (0..TURNS).map(|number| Letter { link: AtomicUsize::new(0), number }).collect()).collect();
    let inbox = Inbox::new();
    let place = |address: usize| {
        let of_address = |letters: &Vec<Letter>| letters.iter().position(|it| (&raw const *it).addr() == address);
        letters.iter().enumerate().find_map(|(thread, letters)| Some((thread, of_address(letters)?))).unwrap()
    };
    thread::scope(|scope| {
        for letters in &letters {
            let inbox = &inbox;
            scope.spawn(move || {
                for letter in letters {
                    if let Some(sleep) = inbox.push((&raw const *letter).addr(), &letter.link, || true) {
                        inbox.has_ended(sleep);
                    }
                }
            });
        }
        let mut next = [0; THREADS];
        while next != [TURNS; THREADS] {
            let mut taken = Vec::new();
            let mut top = inbox.take();
            while top != 0 {
                let (thread, index) = place(top);
                let letter = &letters[thread][index];
                taken.push((thread, letter.number));
                top = letter.link.load(Ordering::Relaxed);
            }
            for (thread, number) in taken.into_iter().rev() {
                assert_eq!(number, next[thread]);
                next[thread] += 1;
            }
            if !inbox.fall_asleep() {
                continue;
            }
            thread::yield_now();
        }
    });
}

#[test]
fn completed_requests_are_taken_once() {
    let completions = Completions::new(64);
    let (announcement, over) = (Announcement::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        let take = || {
            let mut sum = 0;
            let spin = |_: &_, _| {
                thread::yield_now();
                Wait::Done
            };
            let next = || match completions.take() {
                None if over.load(Ordering::Acquire) => Some(completions.take()),
                taken => taken.map(Some),
            };
            while let Ok(Some(completed)) = announcement.wait(next, spin) {
                assert_eq!(completed.result, -completed.request.cast_signed());
                sum += completed.request;
            }
            sum
        };
        let takers = [scope.spawn(take), scope.spawn(take)];
        let mut struck_out = 0;
        for request in 1..=TURNS {
            while completions.is_full() {
                thread::yield_now();
            }
            let position = completions.reserve(Completed { request, result: -request.cast_signed() });
            if request % 7 == 0 {
                completions.strike_out(position, request);
                struck_out += request;
            }
            completions.publish(position);
            announcement.announce(|_| {});
        }
        over.store(true, Ordering::Release);
        let taken: usize = takers.map(|taker| taker.join().unwrap()).iter().sum();
        assert_eq!(taken + struck_out, TURNS * (TURNS + 1) / 2);
    });
}

#[test]
fn counts_of_threads_come_to_nothing() {
    let in_flight = InFlight::<4>::new();
    thread::scope(|scope| {
        for fd in [1, 1, 9, -1] {
            let in_flight = &in_flight;
            scope.spawn(move || {
                for _ in 0..TURNS {
                    in_flight.enter(fd);
                    assert!(in_flight.any(fd));
                    in_flight.leave(fd);
                }
            });
        }
    });
    assert!(!in_flight.any(1) && !in_flight.any(9) && in_flight.among(0, u32::MAX).next().is_none());
}

fn descriptor() -> Arc<OwnedFd> {
    let (reader, _) = io::pipe().unwrap();
    Arc::new(reader.into())
}

#[test]
fn operations_never_begun_have_their_buffers() {
    let queue = CompletionQueue::new(4);
    for notify in [Notify::Silent, Notify::Signal(libc::SIGUSR1), Notify::Queue(queue.clone())] {
        let mut operation = Operation::new(Provider::Taut, descriptor(), 100, 7, notify);
        operation.buffer_mut().unwrap().fill(3);
        operation.turn_to(descriptor()).unwrap();
        assert_eq!(operation.start_read(101, 0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(!operation.is_in_flight() && operation.take_result().is_none());
        operation.stop();
        assert_eq!((operation.token(), operation.buffer()), (7, Some(&[3; 100][..])));
        // Elsewhere, it still has them.
        let moved = Box::new(operation);
        assert_eq!(moved.buffer(), Some(&[3; 100][..]));
    }
}

#[test]
fn a_list_waits_for_nothing_that_was_never_begun() {
    let operation = |bytes| Operation::new(Provider::Taut, descriptor(), bytes, bytes, Notify::Silent);
    let mut list = OperationList::new((0..5).map(operation).collect()).unwrap();
    assert!(list.suspend(None).unwrap() && list.suspend(Some(Duration::ZERO)).unwrap());
    for index in 0..list.len() {
        let mut in_place = list.get_mut(index);
        in_place.buffer_mut().unwrap().fill(1);
        assert!(in_place.take_result().is_none());
        assert_eq!(list[index].buffer(), Some(&vec![1; index][..]));
    }
    let moved = Box::new(list);
    assert!(moved.suspend(None).unwrap() && moved[4].token() == 4);
    assert!(OperationList::new(Vec::new()).unwrap().is_empty());
}
