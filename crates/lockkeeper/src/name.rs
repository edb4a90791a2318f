//! The name of a lock: checked once, when it is made, so that no store ever meets a bad one.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// A valid name: 1 to 512 bytes of UTF-8 without NUL.
///
/// Names are compared byte for byte: `A` and `a` are two locks on every store.
///
/// ```
/// use lockkeeper::Name;
///
/// let name = Name::new("orders:42")?;
/// assert_eq!(name.as_str(), "orders:42");
/// assert!(Name::new("").is_err() && Name::new("x".repeat(Name::MAX_LEN + 1)).is_err());
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 512;

    /// Checks `name` and keeps it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] if it is empty, longer than [`Name::MAX_LEN`] bytes or holds a NUL.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        let complaint = if name.is_empty() {
            "a name must not be empty".to_owned()
        } else if name.len() > Self::MAX_LEN {
            format!("a name of {} bytes is too long; at most {} are allowed", name.len(), Self::MAX_LEN)
        } else if name.contains('\0') {
            format!("the name {name:?} holds a NUL byte; use any other character")
        } else {
            return Ok(Self(Arc::from(name)));
        };
        Err(Error::new(ErrorKind::InvalidName, complaint))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        Self::new(name)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.as_str().to_owned()
    }
}

/// Whether `text` matches `pattern`: `*` is any text, `?` any character, `\` takes the next character literally.
pub(crate) fn matches_pattern(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where the last star stands, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
                continue;
            }
            Some('?') => Some(1),
            Some('\\') if pattern.get(p + 1) == Some(&text[t]) => Some(2),
            Some('\\') => None,
            Some(wanted) if *wanted == text[t] => Some(1),
            _ => None,
        };
        match (step, star) {
            (Some(step), _) => {
                p += step;
                t += 1;
            }
            (None, Some((at, taken))) => {
                star = Some((at, taken + 1));
                p = at + 1;
                t = taken + 1;
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|left| *left == '*')
}

/// `text` as a pattern that matches only itself.
pub(crate) fn literal_pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '\\' | '[' | ']') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_told() {
        for (pattern, text, expected) in [
            ("*", "anything", true),
            ("orders:*", "orders:42", true),
            ("orders:*", "order", false),
            ("o?ders", "orders", true),
            ("*:4?", "orders:42", true),
            ("*a*b", "xaxxb", true),
            ("*a*b", "xaxxbc", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches_pattern(pattern, text), expected, "{pattern} on {text}");
        }
        assert!(matches_pattern(&literal_pattern("a*b?\\[c]"), "a*b?\\[c]"));
    }

    #[test]
    fn a_bad_name_is_refused_with_what_is_allowed() {
        for (name, says) in [(String::new(), "empty"), ("x".repeat(513), "at most 512"), ("a\0b".to_owned(), "NUL")] {
            let error = Name::new(&name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName);
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn the_longest_name_and_any_script_are_allowed() {
        assert!(Name::new("x".repeat(512)).is_ok());
        assert!(Name::new("заказ:{42}:注文").is_ok());
    }
}
