//! LEDs that are given to a route's triggers (Documentation/leds/leds-class.rst).

use std::fs;
use std::io;
use std::path::PathBuf;

/// An LED in the hands of a trigger, until this is dropped; when the process is killed, the kernel
/// leaves it without any.
#[derive(Debug)]
pub(super) struct LedClaim {
    trigger: PathBuf,
    before: Option<String>,
}

impl LedClaim {
    /// Hands the LED over.
    pub(super) fn take(led: &str, trigger_name: &str) -> io::Result<Self> {
        let trigger = PathBuf::from("/sys/class/leds").join(led).join("trigger");
        let before = chosen(&fs::read_to_string(&trigger)?);
        fs::write(&trigger, trigger_name)?;
        Ok(Self { trigger, before })
    }
}

impl Drop for LedClaim {
    fn drop(&mut self) {
        // The LED may be gone.
        let _ = fs::write(&self.trigger, self.before.as_deref().unwrap_or("none"));
    }
}

/// The trigger in brackets.
fn chosen(triggers: &str) -> Option<String> {
    triggers.split_whitespace().find_map(|word| Some(word.strip_prefix('[')?.strip_suffix(']')?.to_owned()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_chosen_trigger_is_in_brackets() {
        assert_eq!(super::chosen("none [kbd-numlock] disk\n").as_deref(), Some("kbd-numlock"));
        assert_eq!(super::chosen("none disk\n"), None);
    }
}
