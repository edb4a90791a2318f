//! TLS for the driver, by rustls. What is checked follows libpq's `sslmode`.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};

use super::config::{Tls, Verify};
use crate::error::{Error, ErrorKind, Result};

/// Makes TLS connections.
#[derive(Clone)]
pub(super) struct Connector(Arc<ClientConfig>);

/// A connection with TLS around it.
pub(super) struct TlsStream(tokio_rustls::client::TlsStream<Socket>);

impl Connector {
    pub(super) fn new(tls: &Tls) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let unusable = |cause: rustls::Error| Error::new(ErrorKind::Config, "TLS cannot be used").with_source(cause);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
        let roots = Arc::new(tls.root.as_deref().map(roots).transpose()?.unwrap_or_else(RootCertStore::empty));
        let verifier: Arc<dyn ServerCertVerifier> = match tls.verify {
            Verify::Name => {
                let built = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
                built
                    .map_err(|cause| Error::new(ErrorKind::Config, "sslrootcert= has no usable certificate").with_source(cause))?
            }
            Verify::Authority => Arc::new(Lenient { roots: Some(roots), provider }),
            Verify::Nothing => Arc::new(Lenient { roots: None, provider }),
        };
        let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }
}

fn roots(file: &str) -> Result<RootCertStore> {
    let refused = |cause: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Config, format!("cannot read the certificates in sslrootcert={file}: {cause}"))
    };
    let mut roots = RootCertStore::empty();
    let (_, text) = crate::runtime::read_file(file.as_ref()).map_err(|cause| refused(&cause))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|cause| refused(&cause))?;
        roots.add(certificate).map_err(|cause| refused(&cause))?;
    }
    if roots.is_empty() { Err(refused(&"there is none")) } else { Ok(roots) }
}

/// Checks less than the name of the server: `verify-ca` checks the authority, `require` and `prefer` nothing, as libpq.
#[derive(Debug)]
struct Lenient {
    roots: Option<Arc<RootCertStore>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A connector for one server.
pub(super) struct ToServer {
    config: Arc<ClientConfig>,
    /// `None`: a Unix socket, or a name that no certificate can have.
    name: Option<ServerName<'static>>,
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = TlsStream;
    type TlsConnect = ToServer;
    type Error = std::convert::Infallible;

    fn make_tls_connect(&mut self, domain: &str) -> std::result::Result<ToServer, Self::Error> {
        Ok(ToServer { config: Arc::clone(&self.0), name: ServerName::try_from(domain.to_owned()).ok() })
    }
}

impl TlsConnect<Socket> for ToServer {
    type Stream = TlsStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TlsStream>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        let Self { config, name } = self;
        Box::pin(async move {
            let name = name.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "TLS needs the name of a server"))?;
            tokio_rustls::TlsConnector::from(config).connect(name, stream).await.map(TlsStream)
        })
    }
}

impl tokio_postgres::tls::TlsStream for TlsStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
