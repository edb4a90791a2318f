//! Entry points to the parsers of URLs and config files.

use std::time::Duration;

use super::config;
use super::url;

/// A URL, and what is made of it before anything is opened.
pub(crate) fn store_url(text: &str) {
    // `config:` reads the file that the rest names.
    if text.trim_start().to_ascii_lowercase().starts_with("config:") {
        return;
    }
    if let Ok(target) = url::parse(text) {
        let shown = target.to_string();
        assert!(shown.contains(':'), "a URL without a scheme: {shown}");
        let (_, _, _) = (target.is_private(), target.setup_sql(), target.fits(Duration::from_secs(5)));
    }
}

/// The text of a config file, in TOML or as Redisson writes it; what it names is a URL.
pub(crate) fn config_file(text: &str, is_yaml: bool) {
    if let Ok(url) = config::store_in(text, is_yaml) {
        store_url(&url);
    }
}
