//! Whether two programs read the same clock.

/// A number that is equal for two programs exactly when they read the same `CLOCK_MONOTONIC`: same
/// boot, same time namespace (time_namespaces(7)). 0 where this kernel does not tell.
pub fn boot_identity() -> u64 {
    let namespace = match std::fs::read_link("/proc/self/ns/time") {
        Ok(link) => Some(link.display().to_string()),
        // A kernel before Linux 5.6 has one time for all.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(String::new()),
        Err(_) => None,
    };
    identity(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok(), namespace)
}

/// Whether a peer that tells this identity reads our `CLOCK_MONOTONIC`. Of two that are not known nobody can say.
pub fn is_this_boot(peer: u64) -> bool {
    peer != 0 && peer == boot_identity()
}

fn identity(boot: Option<String>, namespace: Option<String>) -> u64 {
    let (Some(boot), Some(namespace)) = (boot.filter(|boot| !boot.trim().is_empty()), namespace) else { return 0 };
    // FNV-1a: both ends must compute the same, so the standard library's seeded hash won't do.
    boot.bytes()
        .chain(namespace.bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_never_the_same() {
        let text = |text: &str| Some(text.to_owned());
        assert_ne!(identity(text("a"), text("time:[1]")), identity(text("a"), text("time:[2]")));
        assert_ne!(identity(text("a"), text("")), identity(text("b"), text("")));
        for (boot, namespace) in [(None, text("time:[1]")), (text("\n"), text("")), (text("a"), None), (None, None)] {
            assert_eq!(identity(boot, namespace), 0);
        }
        assert!(!is_this_boot(0));
        assert!(boot_identity() == 0 || is_this_boot(boot_identity()));
    }
}
