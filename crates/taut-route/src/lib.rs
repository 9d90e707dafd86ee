//! Routes: from a sensor to outputs by a condition.
//!
//! - [`condition`]: the language, its typed form and its interpreter.

pub mod condition;
