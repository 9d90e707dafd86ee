//! Questions and answers made by hand: what was asked again and why, and twins where nothing was.

use proptest::prelude::*;
use taut_event::{
    Address, Closed, Content, Coverage, Datagram, Direction as Way, Dns, Event, Flow, FlowId, FlowKey, Holder, Kind,
    Sink, VantageId, What,
};
use taut_time::{ByteRange, Instant, Layer};

use crate::engine::drawn::assert_is_the_breakdown;
use crate::{Direction, DnsFacts, Engine, Found, Verdict};

const MS: u64 = 1_000_000;
const A: u16 = 1;
const AAAA: u16 = 28;

struct Talk {
    engine: Engine,
    frame: u64,
}

/// A question by its transaction, port, server, name and kind.
#[derive(Clone, Copy)]
struct Asked(u16, u16, u8, u32, u16);

impl Talk {
    fn new() -> Self {
        let mut engine = Engine::new(4).with_spans(1 << 12);
        let coverage = Coverage::of(&[Kind::Datagrams]);
        let key = FlowKey::Dns([10, 0, 0, 5].into());
        engine.flow(FlowId(0), &Flow { key, from_start: false, coverage });
        Self { engine, frame: 0 }
    }

    fn ask(&mut self, ms: u64, asked: Asked) {
        self.say(ms * MS, asked, false);
    }

    fn answer(&mut self, ms: u64, asked: Asked) {
        self.say(ms * MS, asked, true);
    }

    fn say(&mut self, at: u64, Asked(id, port, server, name, kind): Asked, is_answer: bool) {
        self.frame += 1;
        let server = Address { ip: [10, 0, 0, server].into(), port: 53 };
        let dns = Dns { id, is_answer, code: 0, name, kind, server, port };
        self.engine.event(&Event {
            at: Instant::from_nanos(at),
            seen_by: VantageId(0),
            flow: FlowId(0),
            direction: if is_answer { Way::Backward } else { Way::Forward },
            layer: Layer::Medium,
            what: What::Datagram(Datagram {
                hash: Some(1),
                first: None,
                is_fragmented: false,
                content: Content::Dns(dns),
            }),
            bytes: ByteRange::new(0, 40),
            who: None,
            place: self.frame,
        });
    }

    fn finish(mut self) -> Direction {
        self.engine.close(FlowId(0), Closed::EndOfSource);
        let explanation = self.engine.finish();
        assert_eq!(explanation.directions, 1);
        explanation.worst.into_iter().next().unwrap()
    }
}

fn ns(direction: &Direction, holder: Holder) -> u64 {
    direction.breakdown.iter().find(|held| held.holder == holder.name()).map_or(0, |held| held.held_ns)
}

fn verdict<'a>(direction: &'a Direction, cause: &str) -> &'a Verdict {
    &direction.verdicts.iter().find(|on| on.cause == cause).unwrap().verdict
}

fn retry(direction: &Direction) -> &Found {
    let Verdict::Found(found) = verdict(direction, "dns_retry") else { panic!("{direction:#?}") };
    found
}

fn facts(direction: &Direction) -> &DnsFacts {
    direction.datagrams.as_ref().unwrap().dns.as_ref().unwrap()
}

/// The first server is dead: glibc asks the second one after 5 s, from another port.
/// A resolver of a whole network: more is under way than is kept.
#[test]
fn questions_that_are_not_followed_are_not_called_unanswered() {
    let asked = |n: u64| Asked(n as u16, 4000, 53, 1000 + n as u32, A);
    let told = |waiting: u64, answered: u64| {
        let mut talk = Talk::new();
        (0..waiting).for_each(|n| talk.say(n * 1000, asked(n), false));
        (0..answered).for_each(|n| talk.say(50 * MS + n * 1000, asked(n), true));
        talk.finish()
    };
    let all = told(500, 500);
    let facts = all.datagrams.as_ref().unwrap();
    assert_eq!((facts.answers, facts.dns.as_ref().unwrap().given_up), (500, 0));
    assert_eq!(all.remarks, [""; 0]);
    let more = told(600, 600);
    assert_eq!((more.datagrams.as_ref().unwrap().answers, self::facts(&more).servers[0].answers), (600, 600));
    let remark = "88 questions were not followed, as more than 512 waited at once; 0 of them had no answer.";
    assert_eq!(more.remarks, [remark]);
    let silent = told(600, 0);
    assert!(silent.remarks.iter().any(|remark| remark.ends_with("88 of them had no answer.")), "{:?}", silent.remarks);
}

#[test]
fn a_question_that_goes_to_the_next_server_had_no_answer() {
    let mut talk = Talk::new();
    for n in 0..3 {
        let at = u64::from(n) * 20_000;
        talk.ask(at, Asked(n, 4000 + n, 1, 7, A));
        talk.ask(at + 5_005, Asked(n, 5000 + n, 2, 7, A));
        talk.answer(at + 5_017, Asked(n, 5000 + n, 2, 7, A));
    }
    let direction = talk.finish();
    assert_eq!((ns(&direction, Holder::Unanswered), ns(&direction, Holder::PeerTurn)), (15_015 * MS, 36 * MS));
    assert_eq!(direction.span_ns, 45_017 * MS);
    let found = retry(&direction);
    assert!(found.summary.contains("3 of 6") && found.summary.contains("glibc"), "{found:#?}");
    assert_eq!(found.evidence[0].frames, Some([1, 2]));
    assert!(found.evidence[1].text.starts_with("10.0.0.1 answered 0 of 3; 10.0.0.2 answered 3 of 3"), "{found:#?}");
    assert!(found.remedy.contains("10.0.0.1") && found.remedy.contains("timeout:1"), "{found:#?}");
    assert_eq!((direction.to.as_str(), direction.repeated_segments), ("DNS 10.0.0.1, 10.0.0.2", 3));
}

/// A firewall loses the second one of two packets sent at once; the resolver asks for it again.
#[test]
fn of_a_pair_of_which_one_is_answered_the_pair_is_told() {
    let mut talk = Talk::new();
    for n in 0..4 {
        let (at, port) = (u64::from(n) * 9_000, 4000 + n);
        talk.ask(at, Asked(2 * n, port, 1, 9, A));
        talk.ask(at, Asked(2 * n + 1, port, 1, 9, AAAA));
        talk.answer(at + 12, Asked(2 * n, port, 1, 9, A));
        talk.ask(at + 5_000, Asked(2 * n + 1, port, 1, 9, AAAA));
        talk.answer(at + 5_010, Asked(2 * n + 1, port, 1, 9, AAAA));
    }
    let direction = talk.finish();
    assert_eq!((facts(&direction).of_pairs, ns(&direction, Holder::Unanswered)), (4, 4 * 5_000 * MS));
    assert!(retry(&direction).remedy.contains("single-request-reopen"), "{direction:#?}");
}

/// A slow server is not a lost question.
#[test]
fn answers_that_come_late_are_told() {
    let mut talk = Talk::new();
    talk.ask(0, Asked(1, 4000, 1, 7, A));
    talk.ask(2_000, Asked(1, 5000, 2, 7, A));
    talk.answer(2_100, Asked(1, 4000, 1, 7, A));
    talk.answer(2_200, Asked(1, 5000, 2, 7, A));
    let direction = talk.finish();
    assert_eq!((facts(&direction).late, ns(&direction, Holder::Unanswered)), (1, 2_000 * MS));
    assert_eq!(ns(&direction, Holder::PeerTurn), 200 * MS);
    assert!(retry(&direction).evidence.iter().any(|seen| seen.text.contains("not lost")), "{direction:#?}");
    // To one server from one port: the answers can't be told apart, but there are two.
    let mut talk = Talk::new();
    [0, 5_000].into_iter().for_each(|at| talk.ask(at, Asked(1, 4000, 1, 7, A)));
    [5_100, 5_200].into_iter().for_each(|at| talk.answer(at, Asked(1, 4000, 1, 7, A)));
    let direction = talk.finish();
    assert_eq!((facts(&direction).late, facts(&direction).servers[0].answers), (1, 2));
}

#[test]
fn who_is_answered_or_asks_something_else_does_not_ask_again() {
    let mut talk = Talk::new();
    for n in 0..50 {
        let at = u64::from(n) * 100;
        // The same name each time, with a transaction of its own; another kind and another name beside it.
        let asked = [Asked(3 * n, 4000, 1, 7, A), Asked(3 * n + 1, 4000, 1, 7, AAAA), Asked(3 * n + 2, 4001, 1, 8, A)];
        asked.iter().for_each(|&asked| talk.ask(at, asked));
        // A packet that the capture has twice.
        talk.say(at * MS + 2_000, asked[0], false);
        asked.iter().for_each(|&asked| talk.answer(at + 10, asked));
        talk.answer(at + 10, asked[0]);
    }
    // Somebody else asks the same a little later.
    talk.ask(6_000, Asked(500, 6000, 1, 7, A));
    talk.ask(6_300, Asked(501, 6001, 1, 7, A));
    talk.answer(6_400, Asked(500, 6000, 1, 7, A));
    talk.answer(6_450, Asked(501, 6001, 1, 7, A));
    let direction = talk.finish();
    assert_eq!((verdict(&direction, "dns_retry"), facts(&direction).copies), (&Verdict::Clear, 100));
    assert_eq!((ns(&direction, Holder::PeerTurn), direction.span_ns), (950 * MS, 6_450 * MS));
    assert_eq!((direction.segments, direction.remarks.len()), (152, 0));
}

/// One direction only: what looks like a second try may be another question whose answer was not seen.
#[test]
fn without_answers_only_the_same_transaction_is_a_second_try() {
    let mut talk = Talk::new();
    (0..10).for_each(|n| talk.ask(u64::from(n) * 2_000, Asked(n, 4000 + n, 1, 7, A)));
    let direction = talk.finish();
    assert_eq!(ns(&direction, Holder::Unanswered), 0);
    assert!(matches!(verdict(&direction, "dns_retry"), Verdict::Unknown { .. }), "{direction:#?}");
    let mut talk = Talk::new();
    (0..3).for_each(|n| talk.ask(n * 5_000, Asked(1, 4000, 1, 7, A)));
    let direction = talk.finish();
    assert_eq!((retry(&direction).cost.held_ns, direction.span_ns), (10_000 * MS, 10_000 * MS));
    assert!(direction.remarks.iter().any(|remark| remark.contains("No answer")));
}

/// A host asks with any number of questions open: what is kept of them has an end.
#[test]
fn of_many_open_questions_the_oldest_go() {
    let mut talk = Talk::new();
    (0..1000).for_each(|n| talk.ask(u64::from(n), Asked(n, 4000, (n % 20) as u8, u32::from(n) + 1, A)));
    talk.answer(1_000, Asked(999, 4000, (999 % 20) as u8, 1000, A));
    let direction = talk.finish();
    assert_eq!((facts(&direction).given_up, facts(&direction).servers.len()), (0, 8));
    assert!(direction.remarks[0].ends_with("488 of them had no answer."), "{:?}", direction.remarks);
    assert_eq!(direction.span_ns, 1_000 * MS);
    assert!(size_of::<super::Resolver>() <= 360, "{}", size_of::<super::Resolver>());
}

#[test]
fn an_answer_to_a_question_that_is_not_followed_any_more_is_one_of_its_server() {
    let mut talk = Talk::new();
    let asked = |n: u16| Asked(n, 4000, (n % 2) as u8 + 1, u32::from(n) + 1, A);
    (0..600).for_each(|n| talk.ask(u64::from(n), asked(n)));
    // The first server answers all, the second one half of those whose questions are followed and half of the others.
    (0..600).filter(|n| n % 4 != 3).for_each(|n| talk.answer(1_000 + u64::from(n), asked(n)));
    let direction = talk.finish();
    let servers = &facts(&direction).servers;
    assert_eq!(
        servers.iter().map(|server| (server.questions, server.answers)).collect::<Vec<_>>(),
        [(300, 300), (300, 150)]
    );
    assert_eq!(direction.datagrams.as_ref().unwrap().answers, 450);
    assert!(direction.remarks[0].ends_with("22 of them had no answer."), "{:?}", direction.remarks);
}

#[test]
fn answers_alone_tell_nothing() {
    let mut talk = Talk::new();
    (0..10).for_each(|n| talk.answer(u64::from(n) * 2_000, Asked(n, 4000 + n, 1, 7, A)));
    let direction = talk.finish();
    assert!(matches!(verdict(&direction, "dns_retry"), Verdict::Unknown { .. }), "{direction:#?}");
    assert!(direction.remarks[0].starts_with("10 answers are to questions that the capture lacks"));
    assert_eq!((ns(&direction, Holder::NotKnown), direction.span_ns), (18_000 * MS, 18_000 * MS));
}

/// Nobody knows for how long somebody waited.
#[test]
fn a_question_without_answer_or_second_try_is_given_up() {
    let mut talk = Talk::new();
    talk.ask(0, Asked(1, 4000, 1, 7, A));
    talk.ask(60_000, Asked(2, 4000, 1, 8, A));
    talk.answer(60_020, Asked(2, 4000, 1, 8, A));
    let direction = talk.finish();
    assert_eq!((facts(&direction).given_up, facts(&direction).servers[0].unanswered), (1, 1));
    assert_eq!((ns(&direction, Holder::NotKnown), ns(&direction, Holder::PeerTurn)), (30_000 * MS, 20 * MS));
    assert_eq!(ns(&direction, Holder::SendingProgram), 30_000 * MS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Each nanosecond from the first question to the last packet has one holder.
    #[test]
    fn the_parts_add_up_to_the_whole(
        said in prop::collection::vec(
            (0..9_000_u64, any::<bool>(), (0..4_u16, 0..2_u16, 0..12_u8, 0..3_u32, 0..2_u16)), 1..150,
        ),
    ) {
        let mut talk = Talk::new();
        talk.ask(0, Asked(9, 9, 1, 1, A));
        let mut at = 0;
        for (later, is_answer, (id, port, server, name, kind)) in said {
            at += later;
            talk.say(at * MS, Asked(id, port, server, name, kind), is_answer);
        }
        let direction = talk.finish();
        let sum: u64 = direction.breakdown.iter().map(|held| held.held_ns).sum();
        assert_is_the_breakdown(&direction);
        prop_assert_eq!((sum, direction.span_ns), (at * MS, at * MS));
        prop_assert!(facts(&direction).servers.len() <= 8);
        let questions: u64 = facts(&direction).servers.iter().map(|server| server.questions).sum();
        prop_assert_eq!(questions, direction.segments);
    }
}
