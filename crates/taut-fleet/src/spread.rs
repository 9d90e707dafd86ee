//! What spreads things: the same on every machine and in every version, so that a plan always has the same pairs.

/// FNV-1a, 64 bits, with the last step of `SplitMix64`, since FNV's upper bits hardly differ between short names.
pub(crate) fn hash(text: &str) -> u64 {
    mix(text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
}

pub(crate) const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_everywhere() {
        // SplitMix64's first output from the seed 0, as its author publishes it.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!((hash(""), hash("a")), (mix(0xcbf2_9ce4_8422_2325), mix(0xaf63_dc4c_8601_ec8c)));
    }
}
