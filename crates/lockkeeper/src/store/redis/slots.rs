//! Which slot of a cluster a key lies in, by the server's rule, and a key of ours that lies in a given slot.

use std::sync::LazyLock;

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key: of what stands between the first `{` and the next `}` if that is anything, else of the whole key.
pub(super) fn slot(key: &str) -> u16 {
    let bytes = key.as_bytes();
    let tag = bytes.iter().position(|&byte| byte == b'{').and_then(|open| {
        let inside = &bytes[open + 1..];
        let close = inside.iter().position(|&byte| byte == b'}')?;
        (close > 0).then(|| &inside[..close])
    });
    crc16(tag.unwrap_or(bytes)) % SLOTS
}

/// The key that counts the tokens of a slot.
pub(super) fn tokens_of(slot: u16) -> String {
    format!("lockkeeper:token:{{{}}}", tag_of(slot))
}

/// The smallest number that lies in a slot.
pub(super) fn tag_of(slot: u16) -> u32 {
    static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let mut tags = vec![None; usize::from(SLOTS)];
        let mut missing = tags.len();
        for number in 0_u32.. {
            let place = &mut tags[usize::from(crc16(number.to_string().as_bytes()) % SLOTS)];
            if place.is_none() {
                *place = Some(number);
                missing -= 1;
                if missing == 0 {
                    break;
                }
            }
        }
        tags.into_iter().flatten().collect()
    });
    TAGS[usize::from(slot % SLOTS)]
}

/// CRC-16/XMODEM, as clusters use it.
fn crc16(bytes: &[u8]) -> u16 {
    static TABLE: LazyLock<[u16; 256]> = LazyLock::new(|| {
        std::array::from_fn(|byte| {
            (0..8).fold((byte as u16) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
        })
    });
    bytes.iter().fold(0, |crc, &byte| crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_the_servers() {
        // The check value of CRC-16/XMODEM, and slots that `CLUSTER KEYSLOT` answers with.
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, expected) in [("foo", 12182), ("bar", 5061), ("", 0), ("{foo}bar", 12182), ("a{foo}{bar}", 12182)] {
            assert_eq!(slot(key), expected, "{key}");
        }
        assert_eq!(slot("{}foo"), crc16(b"{}foo") % SLOTS, "an empty tag is none");
        assert_eq!(slot("{foo"), crc16(b"{foo") % SLOTS, "an open brace is no tag");
        assert_eq!(slot("{{foo}}"), slot("{foo"), "the tag begins at the first brace");
    }

    #[test]
    fn a_counter_lies_in_its_slot() {
        for of in [0, 1, 5061, 12182, SLOTS - 1] {
            assert_eq!(slot(&tokens_of(of)), of);
        }
    }
}
