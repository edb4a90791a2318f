//! Which cryptography rustls uses, for drivers that leave that to the process.

use rustls::crypto::{CryptoProvider, ring};

/// Makes ring the default of the process, unless the program has chosen one itself.
///
/// Some drivers call `ClientConfig::builder()`. If the program has more than one provider built in and none was chosen, that panics. The feature
/// `zookeeper-tls` builds in a second one.
pub(crate) fn choose_provider() {
    if CryptoProvider::get_default().is_none() {
        // Fails if another thread has chosen one meanwhile, which is as good.
        let _ = ring::default_provider().install_default();
    }
}
