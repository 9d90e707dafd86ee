use proptest::prelude::*;

use super::*;

fn layout() -> Layout {
    Layout::new([("value".to_owned(), "i64be@0".parse().unwrap())]).unwrap()
}

/// What a condition of `value` gives for each of these events, by time in ms and value.
fn run(when: &str, events: &[(i64, i64)]) -> Vec<bool> {
    let program = Program::parse(when, &[], &layout()).unwrap_or_else(|error| panic!("{error}"));
    let mut memory = program.memory();
    let step = |&(ms, value): &(i64, i64)| {
        program.handle(&mut memory, ms * 1_000_000, &value.to_be_bytes(), &mut Vec::new()) == Verdict::Passed
    };
    events.iter().map(step).collect()
}

/// What an expression of `value` gives for each of these values.
fn numbers(send: &str, values: &[i64]) -> Vec<i64> {
    let program = Program::parse("true", &[send], &layout()).unwrap_or_else(|error| panic!("{error}"));
    let (mut memory, mut outputs) = (program.memory(), Vec::new());
    let step = |value: &i64| {
        program.handle(&mut memory, 1, &value.to_be_bytes(), &mut outputs);
        outputs[0]
    };
    values.iter().map(step).collect()
}

fn column(text: &str) -> (usize, String) {
    match Program::parse(text, &[], &layout()) {
        Err(ProgramError::When(error)) => (error.column, error.expected),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn precedence_is_that_of_the_module() {
    assert_eq!(numbers("2 + 3 * 4 - -1", &[0]), [15]);
    assert_eq!(numbers("1 << 2 + 1 | 3 & 6 ^ 1", &[0]), [(1 << 3) | ((3 & 6) ^ 1)]);
    assert_eq!(numbers("10 - 3 - 2", &[0]), [5]);
    assert_eq!(numbers("value == 1 && !(value > 0) || true ? 7 : 8", &[1]), [7]);
    assert_eq!(numbers("value > 3 ? 1 : value > 1 ? 2 : 3", &[4, 2, 0]), [1, 2, 3]);
    assert_eq!(numbers("0xffff_ffff_ffff_ffff + 0b11 + 1_000", &[0]), [1002]);
    assert_eq!(numbers("1.5s + 5ms + 2us + 3ns + 1min", &[0]), [61_505_002_003]);
}

#[test]
fn every_operator_has_a_result_for_all_operands() {
    let least = i64::MIN;
    assert_eq!(numbers("value / 0 + value % 0", &[7]), [7]);
    assert_eq!(numbers("value / -1", &[least]), [least]);
    assert_eq!(numbers("value % -1", &[least]), [0]);
    assert_eq!(numbers("-value", &[least]), [least]);
    assert_eq!(numbers("abs(value)", &[least, -3]), [least, 3]);
    assert_eq!(numbers("value + 1", &[i64::MAX]), [least]);
    assert_eq!(numbers("1 << value", &[64, 65, -1]), [1, 2, least]);
    assert_eq!(numbers("value >> 1", &[-3]), [-2]);
    assert_eq!(numbers("value / 2 * 10 + value % 2", &[-3]), [-11]);
}

#[test]
fn filters_do_as_described() {
    assert_eq!(numbers("previous", &[5, 6, 7]), [0, 5, 6]);
    assert_eq!(numbers("delta(value)", &[5, 6, 9]), [5, 1, 3]);
    assert_eq!(numbers("total(value)", &[5, 6, -1]), [5, 11, 10]);
    assert_eq!(numbers("average(value, 3)", &[3, 5, 10, 3, -1]), [3, 4, 6, 6, 4]);
    assert_eq!(numbers("average(value, 4)", &[4, 8, 12, 16, 24]), [4, 6, 8, 10, 15]);
    assert_eq!(numbers("average(value, 1)", &[4, 8]), [4, 8]);
    assert_eq!(numbers("smooth(value, 1)", &[8, 0, 0, 16]), [8, 4, 2, 9]);
    assert_eq!(numbers("median(value)", &[5, 100, 6, 7, -50]), [5, 5, 6, 7, 6]);
    assert_eq!(numbers("clamp(value, 0, 10)", &[-5, 5, 15]), [0, 5, 10]);
    assert_eq!(numbers("count * 10 + passed", &[0, 0, 0]), [10, 21, 32]);
    let at = |values: &[i64]| values.iter().map(|&value| (0, value)).collect::<Vec<_>>();
    assert_eq!(run("hysteresis(value, 2, 5)", &at(&[3, 5, 3, 2, 3, 6])), [false, true, true, false, false, true]);
    assert_eq!(run("rise(value > 0)", &at(&[1, 1, 0, 1])), [true, false, false, true]);
    assert_eq!(run("fall(value > 0)", &at(&[0, 1, 0, 0])), [false, false, true, false]);
    assert_eq!(run("changed(value)", &at(&[0, 0, 1])), [true, false, true]);
}

#[test]
fn times_count_from_the_events() {
    assert_eq!(run("value == 0 && since_last > 5ms", &[(0, 0), (4, 0), (10, 0), (20, 1)]), [true, false, true, false]);
    assert_eq!(run("since_passed >= 10ms", &[(0, 0), (9, 0), (10, 0), (15, 0)]), [true, false, true, false]);
    // Two at once, then one in 5 ms.
    assert_eq!(
        run("limit(value > 0, 2, 10ms)", &[(0, 1), (0, 1), (0, 1), (5, 1), (5, 1), (30, 0), (30, 1), (30, 1)]),
        [true, true, false, true, false, false, true, true]
    );
    // A bounce of 2 ms does not count, 10 ms do.
    assert_eq!(
        run(
            "debounce(value > 0, 10ms)",
            &[(0, 1), (2, 0), (3, 1), (12, 1), (13, 1), (14, 0), (15, 1), (30, 0), (40, 0)]
        ),
        [false, false, false, false, true, true, true, true, false]
    );
}

#[test]
fn a_short_event_changes_nothing_but_its_count() {
    let program = Program::parse("u16be[4] > 0", &["count"], &Layout::default()).unwrap();
    assert_eq!(program.payload_bytes, 6);
    let (mut memory, mut outputs) = (program.memory(), Vec::new());
    assert_eq!(program.handle(&mut memory, 1, &[0; 5], &mut outputs), Verdict::Short);
    assert_eq!(program.handle(&mut memory, 1, &[0, 0, 0, 0, 0, 1], &mut outputs), Verdict::Passed);
    assert_eq!((memory.count, memory.short, outputs), (1, 1, vec![1]));
}

#[test]
fn errors_point_at_the_column() {
    for (text, at, expected) in [
        ("", 1, "a number, a name or `(`"),
        ("value = 0", 7, "a number, a name or an operator"),
        ("value == ", 10, "a number, a name or `(`"),
        ("valeu == 0", 1, "a field (value, len"),
        ("value", 1, "a condition"),
        ("value + true > 0", 9, "a number"),
        ("(value > 0", 11, "an operator or `)`"),
        ("value > 0)", 10, "an operator or the end"),
        ("1 < value < 3", 11, "`&&`, `||` or the end"),
        ("average(value, 0) > 1", 16, "from 1 to 256"),
        ("average(value, value) > 1", 16, "a constant"),
        ("average(value) > 1", 14, "`,` of average(number, events)"),
        ("hysteresis(value, 5, 2)", 20, "a `high` above `low`"),
        ("since_last > 5mm", 14, "a time in ns"),
        ("u16be > 3", 7, "`[` and the offset"),
        ("u16be[1399] > 3", 7, "an offset from 0 to 1398"),
        ("value > 99999999999999999999", 9, "a whole number below 2^63"),
        ("µ > 0", 1, "a number, a name"),
        ("value > 0 ? true : 1", 20, "a condition"),
    ] {
        let (found, message) = column(text);
        assert!(found == at && message.starts_with(expected), "{text}: {found} {message}");
    }
    let error = Program::parse("value = 0", &[], &layout()).unwrap_err().to_string();
    assert!(error.ends_with("\n  value = 0\n        ^"), "{error}");
    let deep = format!("{}1{} > 0", "(1 + ".repeat(40), ")".repeat(40));
    assert!(column(&deep).1.starts_with("less nesting"));
    assert!(column(&"(".repeat(5000)).1.starts_with("less nesting"));
    assert!(column(&format!("{}true", "!".repeat(5000))).1.starts_with("less nesting"));
    assert!(column(&format!("1{} > 0", " + 1".repeat(600))).1.starts_with("at most"));
    assert!(column("average(value, 256) + average(value, 255) > 0").1.starts_with("filters that remember"));
}

proptest! {
    #[test]
    fn any_text_is_a_program_or_an_error_in_it(text in "[a-z0-9µ_ ()\\[\\]+*/<>=!&|?:,.%^~-]{0,40}") {
        if let Err(ProgramError::When(error)) = Program::parse(&text, &[], &layout()) {
            prop_assert!(error.column <= text.chars().count() + 1);
        }
    }
}
