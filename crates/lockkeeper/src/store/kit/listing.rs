//! Listing by pattern, a page at a time.

use crate::backend::{Listing, Page, Snapshot};
use crate::error::Result;
use crate::name::Name;

/// The text that every match of `pattern` begins with.
fn prefix(pattern: &str) -> &str {
    pattern.split(['*', '?', '\\']).next().unwrap_or_default()
}

/// Makes a page. `names(store, after, from)` gives some names in order, all larger than `after` and none smaller than `from`; an empty answer means
/// that there are no more. No more of them are read than the page needs.
pub(crate) fn page<S>(
    store: &mut S,
    listing: &Listing,
    names: impl Fn(&mut S, &str, &str) -> Result<Vec<Name>>,
    snapshot: impl Fn(&mut S, &Name) -> Result<Option<Snapshot>>,
) -> Result<Page> {
    let mut page = Page::default();
    let (mut last, mut count) = (None, 0);
    let prefix = prefix(&listing.pattern);
    // Names are never empty, so the first page begins after the empty one.
    let mut after = listing.after.clone().unwrap_or_default();
    loop {
        let some = names(store, &after, prefix)?;
        let Some(end) = some.last() else { return Ok(page) };
        after = end.as_str().to_owned();
        for name in some {
            if !name.as_str().starts_with(prefix) {
                return Ok(page);
            }
            if !listing.matches(&name) {
                continue;
            }
            if count == listing.limit {
                page.next = last.map(String::from);
                return Ok(page);
            }
            count += 1;
            page.found.extend(snapshot(store, &name)?);
            last = Some(name);
        }
    }
}

/// Makes a page of a store that has all its names at hand, in any order.
pub(crate) fn page_of_all<S>(
    store: &mut S,
    listing: &Listing,
    all: impl Fn(&S) -> Vec<Name>,
    snapshot: impl Fn(&mut S, &Name) -> Result<Option<Snapshot>>,
) -> Result<Page> {
    let names = |store: &mut S, after: &str, from: &str| {
        let mut names = all(store);
        names.retain(|name| name.as_str() > after && name.as_str() >= from);
        names.sort_unstable();
        Ok(names)
    };
    page(store, listing, names, snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_at_its_limit_and_says_where_to_go_on() {
        let all = ["a", "b1", "b2", "b3", "bx", "c"];
        let read = |pattern: &str, after: Option<&str>| {
            let listing = Listing { pattern: pattern.to_owned(), after: after.map(str::to_owned), limit: 2 };
            let mut shown = std::cell::RefCell::new(Vec::new());
            let page = page(
                &mut shown,
                &listing,
                // Two at a time, so that a page takes several.
                |_, after, from| all.iter().filter(|name| **name > after && **name >= from).take(2).map(Name::new).collect(),
                |shown, name| {
                    shown.get_mut().push(name.to_string());
                    Ok(None)
                },
            );
            (shown.into_inner(), page.unwrap().next)
        };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(read("b?", None), (names(&["b1", "b2"]), Some("b2".to_owned())));
        assert_eq!(read("b?", Some("b2")), (names(&["b3", "bx"]), None));
        assert_eq!(read("c", None), (names(&["c"]), None));
        assert_eq!([prefix("b*"), prefix("*"), prefix("a?c"), prefix("a\\*"), prefix("abc")], ["b", "", "a", "a", "abc"]);
    }
}
