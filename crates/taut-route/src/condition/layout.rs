//! Where values stand in the bytes of an event.

use super::field::{Field, Form};
use super::names;

/// Names for fields. `value` is the one that `value` and `previous` mean.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Layout {
    fields: Vec<(String, Field)>,
}

impl Layout {
    /// A layout with these names, the later one winning where two are the same.
    ///
    /// # Errors
    /// A name is no name, or one that the language uses itself.
    pub fn new(fields: impl IntoIterator<Item = (String, Field)>) -> Result<Self, String> {
        let mut layout = Self::default();
        for (name, field) in fields {
            layout.declare(&name, field)?;
        }
        Ok(layout)
    }

    /// Names a field.
    ///
    /// # Errors
    /// The name is no name, or one that the language uses itself.
    pub fn declare(&mut self, name: &str, field: Field) -> Result<(), String> {
        let mut letters = name.chars();
        let is_name = letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && letters.all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name {
            return Err(format!("`{name}` can't name a field: write letters, digits and _"));
        }
        if names::is_reserved(name) || Form::named(name).is_some() {
            return Err(format!("`{name}` can't name a field: the language has something of that name"));
        }
        self.fields.retain(|(known, _)| known != name);
        self.fields.push((name.to_owned(), field));
        Ok(())
    }

    /// The field of that name.
    pub fn get(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|(known, _)| known == name).map(|&(_, field)| field)
    }

    /// All names with their fields.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Field)> {
        self.fields.iter().map(|(name, field)| (name.as_str(), *field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_both_orders_with_their_sign() {
        let bytes = [0xff, 0xfe, 0x01, 0x02, 0x80, 0, 0, 0, 0, 0, 0, 1];
        let read = |text: &str| text.parse::<Field>().unwrap().read(&bytes);
        assert_eq!(read("u16be@0"), Some(0xfffe));
        assert_eq!(read("i16be@0"), Some(-2));
        assert_eq!(read("i16le@0"), Some(-257));
        assert_eq!(read("u32le@0"), Some(0x0201_feff));
        assert_eq!(read("u64be@4"), Some(i64::MIN + 1));
        assert_eq!(read("i8@4"), Some(-128));
        assert_eq!(read("u16be@11"), None);
        for text in ["i8@3", "i16be@2", "i16le@2", "i32be@1", "i64le@0", "i64be@4"] {
            let (field, mut bytes) = (text.parse::<Field>().unwrap(), [0xaa; 12]);
            field.write(&mut bytes, -77);
            assert_eq!(field.read(&bytes), Some(-77), "{text}");
        }
    }

    #[test]
    fn a_field_is_printed_as_it_is_read_and_what_is_none_is_told() {
        for text in ["u8@0", "i8@3", "u16be@1", "i64le@1392"] {
            assert_eq!(text.parse::<Field>().unwrap().to_string(), text);
        }
        for text in ["", "u16@0", "u24be@0", "u8@", "u8@-1", "i64le@1393", "é8@0", "u8be@0", "iµ@0"] {
            assert!(text.parse::<Field>().is_err(), "{text}");
        }
        let field = "u8@0".parse().unwrap();
        assert!(Layout::new([("count".to_owned(), field)]).is_err());
        assert!(Layout::new([("ü".to_owned(), field)]).is_err());
    }
}
