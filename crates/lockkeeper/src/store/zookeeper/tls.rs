//! TLS: the files that a URL names, for the driver and for connections of our own, and why a handshake failed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use zookeeper_client::TlsOptions;

use super::config::Tls;
use crate::error::{Error, ErrorKind, Result};
use crate::store::kit::tls::choose_provider;

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}

/// What is in the files.
struct Files {
    authorities: String,
    /// Our certificate, and its key.
    identity: Option<(String, String)>,
}

impl Files {
    fn read(tls: &Tls) -> Result<Self> {
        let identity = match &tls.identity {
            Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
            None => None,
        };
        Ok(Self { authorities: read(&tls.ca)?, identity })
    }
}

fn read(file: &Path) -> Result<String> {
    let wrong = |why: &dyn std::fmt::Display| refused(format!("cannot read {}: {why}", file.display()));
    let (_, bytes) = crate::runtime::read_file(file).map_err(|why| wrong(&why).with_source(why))?;
    String::from_utf8(bytes).map_err(|_| wrong(&"it is not PEM"))
}

/// What the driver needs. All that is wrong with the files is told here: the driver would tell it in its own words, and panic for a host that no
/// certificate can name.
pub(super) fn options(tls: &Tls, hosts: &[String]) -> Result<TlsOptions> {
    let files = Files::read(tls)?;
    client(tls, &files)?;
    hosts.iter().try_for_each(|host| name(host).map(|_| ()))?;
    let unusable =
        |cause: zookeeper_client::Error| refused(format!("the certificates cannot be used: {cause}")).with_source(cause);
    let options = TlsOptions::new().with_pem_ca(&files.authorities).map_err(unusable)?;
    match &files.identity {
        Some((certificate, key)) => options.with_pem_identity(certificate, key).map_err(unusable),
        None => Ok(options),
    }
}

/// The same settings as those that the driver makes.
fn client(tls: &Tls, files: &Files) -> Result<Arc<ClientConfig>> {
    choose_provider();
    let builder = ClientConfig::builder();
    let pem = |file: &Path, what: &str, cause: &dyn std::fmt::Display| {
        refused(format!("cannot read the {what} in {}: {cause}", file.display()))
    };
    let in_ca = |cause: &dyn std::fmt::Display| pem(&tls.ca, "certificates", cause);
    let (mut roots, text) = (RootCertStore::empty(), files.authorities.as_bytes());
    for certificate in CertificateDer::pem_slice_iter(text) {
        roots.add(certificate.map_err(|cause| in_ca(&cause))?).map_err(|cause| in_ca(&cause))?;
    }
    if roots.is_empty() {
        return Err(in_ca(&"there is none"));
    }
    let revoked = CertificateRevocationListDer::pem_slice_iter(text).collect::<std::result::Result<Vec<_>, _>>();
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(builder.crypto_provider()))
        .with_crls(revoked.map_err(|cause| in_ca(&cause))?)
        .build()
        .map_err(|cause| in_ca(&cause))?;
    let builder = builder.with_webpki_verifier(verifier);
    let (Some((certificate_file, key_file)), Some((certificate, key))) = (&tls.identity, &files.identity) else {
        return Ok(Arc::new(builder.with_no_client_auth()));
    };
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<std::result::Result<Vec<_>, _>>();
    let chain = chain.map_err(|cause| pem(certificate_file, "certificates", &cause))?;
    if chain.is_empty() {
        return Err(pem(certificate_file, "certificates", &"there is none"));
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|cause| pem(key_file, "private key", &cause))?;
    let built = builder.with_client_auth_cert(chain, key);
    built.map(Arc::new).map_err(|cause| refused(format!("the certificate in cert= and the key in key= cannot be used: {cause}")))
}

/// The name that the certificate of `host:port` must have.
fn name(host: &str) -> Result<ServerName<'static>> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    ServerName::try_from(name.to_owned())
        .map_err(|_| refused(format!("no certificate can be for the host {name:?}; TLS needs a DNS name or an IP address")))
}

/// A connection to `host:port` with TLS around it.
pub(super) async fn connect(tls: &Tls, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    let client = Files::read(tls).and_then(|files| client(tls, &files)).map_err(io::Error::other)?;
    tokio_rustls::TlsConnector::from(client).connect(name(host).map_err(io::Error::other)?, stream).await
}

/// Why a connection with TLS failed, and what to do about it.
pub(super) fn why(cause: &io::Error) -> (ErrorKind, String) {
    use CertificateError as Bad;
    let text = match cause.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(bad)) => match bad {
            Bad::UnknownIssuer => {
                "the server's certificate was not issued by the authority in ca=; give the certificate of the authority that signed it".to_owned()
            }
            Bad::Expired | Bad::ExpiredContext { .. } => {
                "the server's certificate has expired; renew it, or set this machine's clock".to_owned()
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "the server's certificate is for another name; connect by a name that is in it, or have this one added (subjectAltName)".to_owned()
            }
            Bad::Revoked => "the server's certificate has been revoked, as ca= says; give the server a new one".to_owned(),
            bad => format!("the server's certificate cannot be used: {bad}"),
        },
        Some(rustls::Error::AlertReceived(alert)) if is_about_certificate(*alert) => {
            let hint = "the server wants a certificate of this client that it trusts; give one with ?cert=FILE&key=FILE";
            return (ErrorKind::Denied, format!("{hint} (the server says {alert:?})"));
        }
        Some(rustls::Error::InvalidMessage(_)) => "the server does not speak TLS on this port".to_owned(),
        Some(other) => other.to_string(),
        None if cause.kind() == io::ErrorKind::UnexpectedEof => {
            "the server closed the connection; is it a port for TLS (secureClientPort)?".to_owned()
        }
        None => cause.to_string(),
    };
    (ErrorKind::Unavailable, text)
}

fn is_about_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_no_certificate_can_name_is_refused() {
        for (host, good) in
            [("zk1:2281", true), ("[::1]:2281", true), ("127.0.0.1:9", true), ("a b:1", false), ("[fe80::1%eth0]:1", false)]
        {
            assert_eq!(name(host).is_ok(), good, "{host}");
        }
    }

    #[test]
    fn a_failed_handshake_is_told_in_words() {
        let told = |cause: rustls::Error| why(&io::Error::new(io::ErrorKind::InvalidData, cause));
        for (cause, kind, says) in [
            (rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer), ErrorKind::Unavailable, "authority in ca="),
            (rustls::Error::InvalidCertificate(CertificateError::Expired), ErrorKind::Unavailable, "expired"),
            (rustls::Error::InvalidCertificate(CertificateError::NotValidForName), ErrorKind::Unavailable, "another name"),
            (rustls::Error::InvalidCertificate(CertificateError::Revoked), ErrorKind::Unavailable, "revoked"),
            (rustls::Error::AlertReceived(AlertDescription::BadCertificate), ErrorKind::Denied, "?cert=FILE&key=FILE"),
            (rustls::Error::AlertReceived(AlertDescription::ProtocolVersion), ErrorKind::Unavailable, "ProtocolVersion"),
        ] {
            let (is, words) = told(cause);
            assert!(is == kind && words.contains(says), "{is:?} {words}");
        }
        assert!(why(&io::ErrorKind::UnexpectedEof.into()).1.contains("secureClientPort"));
    }
}
