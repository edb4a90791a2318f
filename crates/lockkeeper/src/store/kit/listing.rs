//! Listing by pattern, a page at a time.

use crate::backend::{Listing, Page, Snapshot};
use crate::error::Result;
use crate::name::{Name, matches_pattern};

/// The text that every match of `pattern` begins with.
pub(crate) fn prefix(pattern: &str) -> &str {
    pattern.split(['*', '?', '\\']).next().unwrap_or_default()
}

/// Makes a page of `names`, which come in order and after the page before. Reads no more of them than the page needs.
pub(crate) fn page(
    listing: &Listing,
    names: impl IntoIterator<Item = Result<Name>>,
    mut snapshot: impl FnMut(&Name) -> Result<Option<Snapshot>>,
) -> Result<Page> {
    let mut page = Page::default();
    let (mut last, mut count) = (None, 0);
    for name in names {
        let name = name?;
        if !matches_pattern(&listing.pattern, name.as_str()) {
            continue;
        }
        if count == listing.limit {
            page.next = last.map(String::from);
            break;
        }
        count += 1;
        page.found.extend(snapshot(&name)?);
        last = Some(name);
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_at_its_limit_and_says_where_to_go_on() {
        let names = ["a", "b1", "b2", "b3", "c"].map(|name| Name::new(name));
        let listing = Listing { pattern: "b*".to_owned(), after: None, limit: 2 };
        let mut seen = Vec::new();
        let page = page(&listing, names, |name| {
            seen.push(name.to_string());
            Ok(None)
        });
        assert_eq!((seen, page.unwrap().next), (vec!["b1".to_owned(), "b2".to_owned()], Some("b2".to_owned())));
        assert_eq!([prefix("b*"), prefix("*"), prefix("a?c"), prefix("a\\*"), prefix("abc")], ["b", "", "a", "a", "abc"]);
    }
}
