//! What somebody meant who wrote something else.

/// Says that there is no such setting, and which one comes nearest.
pub(super) fn unknown(word: &str, known: &[&str]) -> String {
    let meant = known.iter().min_by_key(|known| distance(word, known)).copied().unwrap_or_default();
    format!("there is no setting {word:?}; did you mean {meant}?")
}

/// How many characters have to be changed, added or taken away.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, character) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, with) in other.iter().enumerate() {
            let changed = diagonal + usize::from(character != *with);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_meant() {
        assert!(unknown("tokne", &["store", "token", "listen"]).contains("did you mean token?"));
        assert_eq!((distance("store", "store"), distance("stroe", "store"), distance("", "abc")), (0, 2, 3));
    }
}
