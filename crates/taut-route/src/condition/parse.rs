//! Tokens to the typed form: a parser by precedence, which checks types as it goes.

use super::error::SyntaxError;
use super::expression::{Binary, Expression, Filter, Slot, Type, Unary};
use super::field::{Field, Form, LONGEST_PAYLOAD};
use super::layout::Layout;
use super::names::{FACTS, FUNCTIONS};
use super::token::{Placed, Token, tokens};

/// Values that wait at once for another one to be computed: a bound of the generated program's stack.
const DEEPEST: usize = 24;
/// Nested brackets, for the parser's own stack.
const MOST_BRACKETS: usize = 64;
/// Parts of all expressions of a route.
pub const MOST_PARTS: usize = 512;
/// 64-bit words of memory of a route.
pub const MOST_SLOTS: u16 = 512;

/// Parses expressions that share one memory, as those of one route do.
#[derive(Debug)]
pub(super) struct Parser<'a> {
    layout: &'a Layout,
    pub(super) slots: Slot,
    parts: usize,
}

/// An expression on its way, and where it began.
struct Operand {
    expression: Expression,
    r#type: Type,
    at: usize,
    /// Values that wait while it is computed.
    depth: usize,
}

struct Input<'a> {
    text: &'a str,
    tokens: Vec<Placed>,
    next: usize,
    brackets: usize,
}

/// Operators by precedence, the loosest first.
const LEVELS: [&[(&str, Operator)]; 8] = [
    &[("||", Operator::Logic(Binary::Or))],
    &[("&&", Operator::Logic(Binary::And))],
    &[
        ("==", Operator::Equality(Binary::Equal)),
        ("!=", Operator::Equality(Binary::Unequal)),
        ("<=", Operator::Order(Binary::LessOrEqual, false)),
        (">=", Operator::Order(Binary::LessOrEqual, true)),
        ("<", Operator::Order(Binary::Less, false)),
        (">", Operator::Order(Binary::Less, true)),
    ],
    &[("|", Operator::Number(Binary::Or))],
    &[("^", Operator::Number(Binary::Xor))],
    &[("&", Operator::Number(Binary::And))],
    &[("<<", Operator::Number(Binary::ShiftLeft)), (">>", Operator::Number(Binary::ShiftRight))],
    &[("+", Operator::Number(Binary::Add)), ("-", Operator::Number(Binary::Subtract))],
];
const FACTORS: &[(&str, Operator)] = &[
    ("*", Operator::Number(Binary::Multiply)),
    ("/", Operator::Number(Binary::Divide)),
    ("%", Operator::Number(Binary::Remainder)),
];
/// The level of comparisons, which do not chain: `a < b < c` means nothing.
const COMPARISONS: usize = 2;

#[derive(Clone, Copy)]
enum Operator {
    Logic(Binary),
    Equality(Binary),
    /// Whether the operands change places.
    Order(Binary, bool),
    Number(Binary),
}

impl<'a> Parser<'a> {
    pub(super) const fn new(layout: &'a Layout) -> Self {
        Self { layout, slots: 0, parts: 0 }
    }

    /// A whole text as an expression of a type.
    pub(super) fn parse(&mut self, text: &str, wanted: Type) -> Result<Expression, SyntaxError> {
        let mut input = Input { text, tokens: tokens(text)?, next: 0, brackets: 0 };
        let operand = self.expression(&mut input)?;
        if *input.peek() != Token::End {
            return Err(input.unexpected("an operator or the end"));
        }
        let expression = input.typed(operand, wanted)?.expression;
        self.parts += expression.parts();
        if self.parts > MOST_PARTS {
            return Err(input.at(0, &format!("at most {MOST_PARTS} values and operators in one route"), "more"));
        }
        if self.slots > MOST_SLOTS {
            let found = format!("{} words", self.slots);
            return Err(input.at(0, &format!("filters that remember at most {MOST_SLOTS} words together"), found));
        }
        Ok(expression)
    }

    fn expression(&mut self, input: &mut Input<'_>) -> Result<Operand, SyntaxError> {
        input.open()?;
        let condition = self.level(input, 0)?;
        let result = if input.take("?") {
            let condition = input.typed(condition, Type::Condition)?;
            let yes = self.expression(input)?;
            input.expect(":")?;
            let no = self.expression(input)?;
            let no = input.typed(no, yes.r#type)?;
            let depth = condition.depth.max(1 + yes.depth).max(2 + no.depth);
            let (at, r#type) = (condition.at, yes.r#type);
            let [c, a, b] = [condition, yes, no].map(|operand| Box::new(operand.expression));
            input.bounded(Operand { expression: Expression::Select(c, a, b), r#type, at, depth })
        } else {
            Ok(condition)
        };
        input.brackets -= 1;
        result
    }

    fn level(&mut self, input: &mut Input<'_>, level: usize) -> Result<Operand, SyntaxError> {
        let Some(operators) = LEVELS.get(level) else { return self.factors(input) };
        let mut left = self.level(input, level + 1)?;
        while let Some(operator) = input.operator(operators) {
            let right = self.level(input, level + 1)?;
            left = input.join(operator, left, right)?;
            if level == COMPARISONS && input.is_operator(operators) {
                return Err(input.unexpected("`&&`, `||` or the end (comparisons do not chain)"));
            }
        }
        Ok(left)
    }

    fn factors(&mut self, input: &mut Input<'_>) -> Result<Operand, SyntaxError> {
        let mut left = self.prefixed(input)?;
        while let Some(operator) = input.operator(FACTORS) {
            let right = self.prefixed(input)?;
            left = input.join(operator, left, right)?;
        }
        Ok(left)
    }

    fn prefixed(&mut self, input: &mut Input<'_>) -> Result<Operand, SyntaxError> {
        let at = input.place();
        let (unary, wanted) = match input.peek() {
            Token::Symbol("-") => (Unary::Negate, Type::Number),
            Token::Symbol("~") => (Unary::Invert, Type::Number),
            Token::Symbol("!") => (Unary::Not, Type::Condition),
            _ => return self.primary(input),
        };
        input.next += 1;
        input.open()?;
        let operand = self.prefixed(input)?;
        input.brackets -= 1;
        let Operand { expression, depth, .. } = input.typed(operand, wanted)?;
        let expression = match (unary, expression) {
            // So that `-5` is a constant.
            (Unary::Negate, Expression::Constant(value)) => Expression::Constant(value.wrapping_neg()),
            (_, expression) => Expression::Unary(unary, Box::new(expression)),
        };
        Ok(Operand { expression, r#type: wanted, at, depth })
    }

    fn primary(&mut self, input: &mut Input<'_>) -> Result<Operand, SyntaxError> {
        let at = input.place();
        let leaf = |expression, r#type| Ok(Operand { expression, r#type, at, depth: 0 });
        match input.peek().clone() {
            Token::Number(number) => {
                input.next += 1;
                leaf(Expression::Constant(number), Type::Number)
            }
            Token::Symbol("(") => {
                input.next += 1;
                let inner = self.expression(input)?;
                input.expect(")")?;
                Ok(inner)
            }
            Token::Name(name) => {
                input.next += 1;
                if let Some((_, fact)) = FACTS.iter().find(|(known, _)| *known == name) {
                    return leaf(Expression::Fact(*fact), Type::Number);
                }
                match name.as_str() {
                    "true" | "false" => return leaf(Expression::Constant((name == "true").into()), Type::Condition),
                    "previous" => {
                        let value = Expression::Field(self.field(input, at, "value")?);
                        return Ok(self.filter(Filter::Previous, value, Type::Number, at, 0));
                    }
                    _ => {}
                }
                if let Some((_, usage)) = FUNCTIONS.iter().find(|(known, _)| *known == name) {
                    return self.call(input, at, &name, usage);
                }
                if let Some(form) = Form::named(&name) {
                    return leaf(Expression::Field(input.indexed(form)?), Type::Number);
                }
                leaf(Expression::Field(self.field(input, at, &name)?), Type::Number)
            }
            _ => Err(input.unexpected("a number, a name or `(`")),
        }
    }

    fn field(&self, input: &Input<'_>, at: usize, name: &str) -> Result<Field, SyntaxError> {
        self.layout.get(name).ok_or_else(|| {
            let mut known: Vec<&str> = self.layout.iter().map(|(name, _)| name).collect();
            known.extend(FACTS.iter().map(|(name, _)| *name));
            let expected = format!(
                "a field ({}), a function ({}) or a form such as u16be[0]",
                known.join(", "),
                FUNCTIONS.map(|(name, _)| name).join(", ")
            );
            input.at(at, &expected, format!("`{name}`"))
        })
    }

    fn filter(&mut self, filter: Filter, of: Expression, r#type: Type, at: usize, depth: usize) -> Operand {
        let slot = self.slots;
        // Never more than the limit by far: it is checked when the expression is whole, and parts
        // are bounded by the text.
        self.slots = self.slots.saturating_add(filter.slots());
        // Filters keep intermediate values; three wait at most.
        Operand { expression: Expression::Filter(filter, slot, Box::new(of)), r#type, at, depth: depth.max(3) }
    }

    fn call(&mut self, input: &mut Input<'_>, at: usize, name: &str, usage: &str) -> Result<Operand, SyntaxError> {
        if !input.take("(") {
            return Err(input.unexpected(&format!("`(` of {usage}")));
        }
        let first = self.expression(input)?;
        let depth = first.depth;
        let (number, condition) = (Type::Number, Type::Condition);
        let result = match name {
            "abs" => {
                let of = input.typed(first, number)?.expression;
                Ok(Operand { expression: Expression::Unary(Unary::Absolute, Box::new(of)), r#type: number, at, depth })
            }
            "min" | "max" | "clamp" => {
                let first = input.typed(first, number)?;
                input.comma(usage)?;
                let second = self.expression(input)?;
                let second = input.typed(second, number)?;
                if name == "clamp" {
                    input.comma(usage)?;
                    let third = self.expression(input)?;
                    let third = input.typed(third, number)?;
                    let raised = input.binary(Binary::Maximum, number, first, second)?;
                    input.binary(Binary::Minimum, number, raised, third)
                } else {
                    let which = if name == "min" { Binary::Minimum } else { Binary::Maximum };
                    input.binary(which, number, first, second)
                }
            }
            "prev" => {
                let r#type = first.r#type;
                Ok(self.filter(Filter::Previous, first.expression, r#type, at, depth))
            }
            "changed" => Ok(self.filter(Filter::Changed, first.expression, condition, at, depth)),
            _ => {
                let (wanted, gives) = match name {
                    "rise" | "fall" | "debounce" | "limit" => (condition, condition),
                    "hysteresis" => (number, condition),
                    _ => (number, number),
                };
                let of = input.typed(first, wanted)?.expression;
                let filter = Self::remembering(input, name, usage)?;
                Ok(self.filter(filter, of, gives, at, depth))
            }
        }?;
        if !input.take(")") {
            return Err(input.unexpected(&format!("`)` of {usage}")));
        }
        input.bounded(Operand { at, ..result })
    }

    /// The filter of that name with the constants after its first operand.
    fn remembering(input: &mut Input<'_>, name: &str, usage: &str) -> Result<Filter, SyntaxError> {
        const DAY_NS: i64 = 86_400_000_000_000;
        Ok(match name {
            "delta" => Filter::Delta,
            "rise" => Filter::Rise,
            "fall" => Filter::Fall,
            "total" => Filter::Total,
            "median" => Filter::Median,
            "hysteresis" => {
                let low = input.constant(usage, i64::MIN, i64::MAX)?;
                let at = input.place();
                let high = input.constant(usage, i64::MIN, i64::MAX)?;
                if high <= low {
                    return Err(input.at(at, "a `high` above `low`", format!("{high} for {low}")));
                }
                Filter::Hysteresis { low, high }
            }
            "debounce" => Filter::Debounce { ns: input.constant(usage, 1, DAY_NS)? },
            "limit" => {
                let times = input.constant(usage, 1, 1_000_000)?;
                let step_ns = input.constant(usage, 1, DAY_NS)?.div_euclid(times).max(1);
                Filter::Limit { step_ns, ahead_ns: step_ns * (times - 1) }
            }
            "average" => Filter::Average { window: input.constant(usage, 1, 256)? as u16 },
            _ => Filter::Smooth { shift: input.constant(usage, 1, 16)? as u8 },
        })
    }
}

impl Input<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].1
    }

    fn place(&self) -> usize {
        self.tokens[self.next].0
    }

    fn at(&self, at: usize, expected: &str, found: impl Into<String>) -> SyntaxError {
        SyntaxError::new(self.text, at, expected, found)
    }

    fn unexpected(&self, expected: &str) -> SyntaxError {
        self.at(self.place(), expected, self.peek().to_string())
    }

    fn open(&mut self) -> Result<(), SyntaxError> {
        self.brackets += 1;
        if self.brackets > MOST_BRACKETS { Err(self.unexpected("less nesting")) } else { Ok(()) }
    }

    fn take(&mut self, symbol: &str) -> bool {
        let there = matches!(self.peek(), Token::Symbol(found) if *found == symbol);
        self.next += usize::from(there);
        there
    }

    fn expect(&mut self, symbol: &str) -> Result<(), SyntaxError> {
        if self.take(symbol) { Ok(()) } else { Err(self.unexpected(&format!("an operator or `{symbol}`"))) }
    }

    fn comma(&mut self, usage: &str) -> Result<(), SyntaxError> {
        if self.take(",") { Ok(()) } else { Err(self.unexpected(&format!("`,` of {usage}"))) }
    }

    fn is_operator(&self, of: &[(&str, Operator)]) -> bool {
        matches!(self.peek(), Token::Symbol(found) if of.iter().any(|(symbol, _)| symbol == found))
    }

    fn operator(&mut self, of: &[(&str, Operator)]) -> Option<(usize, Operator)> {
        let Token::Symbol(found) = self.peek() else { return None };
        let (_, operator) = of.iter().find(|(symbol, _)| symbol == found)?;
        let at = self.place();
        self.next += 1;
        Some((at, *operator))
    }

    /// A comma and a constant of a function: a number, which may have a sign.
    fn constant(&mut self, usage: &str, least: i64, most: i64) -> Result<i64, SyntaxError> {
        self.comma(usage)?;
        let at = self.place();
        let negative = self.take("-");
        let Token::Number(number) = *self.peek() else {
            return Err(self.unexpected(&format!("a constant, since it is one of {usage}")));
        };
        self.next += 1;
        let number = if negative { number.wrapping_neg() } else { number };
        if (least..=most).contains(&number) {
            Ok(number)
        } else {
            Err(self.at(at, &format!("from {least} to {most} there"), format!("{number}")))
        }
    }

    /// `[OFFSET]` after a form.
    fn indexed(&mut self, form: Form) -> Result<Field, SyntaxError> {
        if !self.take("[") {
            return Err(self.unexpected(&format!("`[` and the offset in the payload, such as {form}[0]")));
        }
        let at = self.place();
        let Token::Number(offset) = *self.peek() else {
            return Err(self.unexpected("the offset, a constant"));
        };
        self.next += 1;
        let last = LONGEST_PAYLOAD - usize::from(form.size);
        let offset = u16::try_from(offset).ok().filter(|&offset| usize::from(offset) <= last);
        let offset = offset.ok_or_else(|| self.at(at, &format!("an offset from 0 to {last}"), "another"))?;
        if self.take("]") { Ok(Field { offset, form }) } else { Err(self.unexpected("`]`")) }
    }

    fn typed(&self, operand: Operand, wanted: Type) -> Result<Operand, SyntaxError> {
        match (wanted, operand.r#type) {
            (Type::Number, Type::Condition) => {
                Err(self.at(operand.at, "a number", "a condition (write `condition ? 1 : 0` to count it)"))
            }
            (Type::Condition, Type::Number) => {
                Err(self.at(operand.at, "a condition", "a number (compare it with something, such as `!= 0`)"))
            }
            _ => Ok(operand),
        }
    }

    fn join(&self, (at, operator): (usize, Operator), left: Operand, right: Operand) -> Result<Operand, SyntaxError> {
        let (number, condition) = (Type::Number, Type::Condition);
        match operator {
            Operator::Logic(which) => {
                let (left, right) = (self.typed(left, condition)?, self.typed(right, condition)?);
                self.binary(which, condition, left, right)
            }
            Operator::Number(which) => {
                let (left, right) = (self.typed(left, number)?, self.typed(right, number)?);
                self.binary(which, number, left, right)
            }
            Operator::Equality(which) => {
                let right = self.typed(right, left.r#type)?;
                self.binary(which, condition, left, right)
            }
            Operator::Order(which, swapped) => {
                let (left, right) = (self.typed(left, number)?, self.typed(right, number)?);
                let at = left.at;
                let (left, right) = if swapped { (right, left) } else { (left, right) };
                self.binary(which, condition, left, right).map(|operand| Operand { at, ..operand })
            }
        }
        .map_err(|error| {
            if error.expected.starts_with("less") { self.at(at, &error.expected, error.found) } else { error }
        })
    }

    fn binary(&self, which: Binary, r#type: Type, left: Operand, right: Operand) -> Result<Operand, SyntaxError> {
        let depth = left.depth.max(1 + right.depth);
        let (at, [left, right]) = (left.at, [left, right].map(|operand| Box::new(operand.expression)));
        self.bounded(Operand { expression: Expression::Binary(which, left, right), r#type, at, depth })
    }

    fn bounded(&self, operand: Operand) -> Result<Operand, SyntaxError> {
        if operand.depth > DEEPEST {
            let expected = format!("less nesting (at most {DEEPEST} values may wait for others)");
            return Err(self.at(operand.at, &expected, operand.depth.to_string()));
        }
        Ok(operand)
    }
}
