//! Requests to etcd: a connection leads to one member at a time, to another one after trouble. `connection` says who drives it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt};
use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::Config;
use super::connection::{Connections, Driver, Open};
use super::error::{Failed, of_connecting, of_request};
use super::gather::Connector;
use super::proto::{AuthenticateRequest, AuthenticateResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::{self, Instant, Runtime, within};
use crate::store::kit::worker::Worker;

/// What a request answers.
pub(super) type Answer<T> = std::result::Result<T, Failed>;

/// How long somebody else who connects, or opens the session, is waited for: that caller's future may not be polled any more. By chance, so that not all
/// who wait for a slow network go on at once.
pub(super) fn patience() -> Duration {
    runtime::jitter(Duration::from_millis(200), Duration::from_millis(800))
}

/// How long connecting to one member may take.
const CONNECTING: Duration = Duration::from_secs(2);

/// A connection on which nothing came for so long is asked whether it lives, and ends if there is no answer in time. Servers refuse to be asked
/// more often than every 5 s.
const PINGS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

/// A request that was given up after this long without an answer: the member is doubted, and the next request goes to another one.
const DOUBTFUL: Duration = Duration::from_millis(400);

/// The same where there is no other member. It is longer, because a new connection costs more than waiting.
const DOUBTFUL_ALONE: Duration = Duration::from_millis(1500);

/// No answer that we ask for is larger.
const LARGEST: usize = 256 << 20;

const TXN: &str = "/etcdserverpb.KV/Txn";
const RANGE: &str = "/etcdserverpb.KV/Range";
pub(super) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(super) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(super) const LEASE_KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
pub(super) const LEASE_TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
pub(super) const STATUS: &str = "/etcdserverpb.Maintenance/Status";
pub(super) const ALARM: &str = "/etcdserverpb.Maintenance/Alarm";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// A way to the members that shares no connection with another one.
pub(super) struct Transport {
    pub(super) config: Arc<Config>,
    pub(super) worker: Worker,
    pub(super) runtime: Runtime,
    connections: Connections,
}

/// Doubts the member of a request that was given up.
pub(super) struct Outstanding<'a> {
    transport: &'a Transport,
    number: u64,
    sent: Instant,
    pub(super) answered: bool,
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        let limit = if self.transport.config.members.len() > 1 { DOUBTFUL } else { DOUBTFUL_ALONE };
        if !self.answered && self.transport.runtime.now().since(self.sent) >= limit {
            self.transport.leave(self.number);
        }
    }
}

impl Transport {
    pub(super) fn new(config: Arc<Config>, worker: Worker, runtime: Runtime) -> Self {
        Self { config, worker, runtime, connections: Connections::default() }
    }

    /// Another way to the same members.
    pub(super) fn another(&self) -> Self {
        Self::new(Arc::clone(&self.config), self.worker.clone(), self.runtime.clone())
    }

    /// Ends this connection; the next request goes to the next member.
    pub(super) fn leave(&self, number: u64) {
        self.connections.leave(number, self.config.members.len());
    }

    /// The connection for the caller, made if there is none: to the member that is next, or to one of the others. Where one says nothing for a
    /// moment, the next one is tried beside it.
    async fn open(&self) -> Answer<Open> {
        let (connection, driver) = self.connections.choose(self.runtime.now());
        if let Some(open) = connection.open() {
            return Ok(open);
        }
        let _alone = within(patience(), Box::pin(connection.connecting.lock())).await;
        if let Some(open) = connection.open() {
            return Ok(open);
        }
        let (first, members) = (connection.member(), self.config.members.len());
        let (mut attempts, mut last) = (FuturesUnordered::new(), None);
        let mut untried = (0..members).map(|further| (first + further) % members);
        loop {
            let next = untried.next();
            if let Some(member) = next {
                // If the caller is dropped while this member is silent, the next attempt starts at the next member.
                connection.try_next(member);
                attempts.push(async move { (member, self.connect(member, driver).await) });
            }
            let doubtful_at = if next.is_some() { self.runtime.now().plus(DOUBTFUL) } else { Instant::NEVER };
            let (member, made) = tokio::select! {
                biased;
                made = attempts.next() => match made {
                    Some(made) => made,
                    None => break,
                },
                () = self.runtime.sleep_until(doubtful_at) => continue,
            };
            match made {
                Ok((channel, token)) => return Ok(self.connections.made(&connection, member, channel, token)),
                Err(error) if error.kind() == ErrorKind::Unavailable => last = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        connection.try_next((first + 1) % members.max(1));
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Config, "the URL names no member")).into())
    }

    /// Connects to one member, and authenticates where the URL has a user.
    pub(super) async fn connect(&self, member: usize, driver: Driver) -> Result<(Channel, Option<String>)> {
        let made = || {
            let (endpoint, config) = (endpoint(&self.config, member)?, Arc::clone(&self.config));
            Ok::<_, Error>(make(endpoint, config))
        };
        if driver == Driver::Caller
            && let Some(made) = runtime::beside(made()?).await
        {
            return made;
        }
        // Also where the caller's executor ended meanwhile, or has no I/O: tokio panics in the task then.
        self.worker.run(made()?).await?
    }

    /// Sends one request and gives its answer. Once more after a token that had ended: nothing was done then.
    pub(super) async fn ask<Q, A>(&self, path: &'static str, request: Q) -> Answer<A>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut again = true;
        loop {
            let Open { channel, number, token } = self.open().await?;
            let mut outstanding = self.outstanding(number);
            let answer = send(&channel, path, request.clone(), token.as_deref()).await;
            outstanding.answered = true;
            match answer.map_err(|status| of_request(&status, &self.config)) {
                Ok(answer) => return Ok(answer),
                Err(Failed::Token) if std::mem::take(&mut again) => self.connections.forget(number),
                Err(failed) => {
                    if let Failed::Error { member: true, .. } = &failed {
                        self.leave(number);
                    }
                    return Err(failed);
                }
            }
        }
    }

    /// A request goes out on this connection. Dropped before it was answered, it doubts the member.
    pub(super) fn outstanding(&self, number: u64) -> Outstanding<'_> {
        Outstanding { transport: self, number, sent: self.runtime.now(), answered: false }
    }

    pub(super) async fn txn(&self, request: TxnRequest) -> Answer<TxnResponse> {
        let namespace = &self.config.namespace;
        self.ask(TXN, namespace.txn(request)).await.map(|answer| namespace.answered(answer))
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Answer<RangeResponse> {
        let namespace = &self.config.namespace;
        let mut answer: RangeResponse = self.ask(RANGE, namespace.range(request)).await?;
        namespace.found(&mut answer.kvs);
        Ok(answer)
    }

    /// Opens a stream in both directions; gives its number for [`leave`](Self::leave) too. The first request must be in `requests` already: the
    /// server answers nothing before.
    pub(super) async fn stream<Q, A>(
        &self,
        path: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Answer<(Streaming<A>, u64)>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let Open { channel, number, token } = self.open().await?;
        let failed = |status: Status| {
            let failed = of_request(&status, &self.config);
            match failed {
                Failed::Token => self.connections.forget(number),
                _ => self.leave(number),
            }
            failed
        };
        let mut outstanding = self.outstanding(number);
        let opened = async {
            let mut client = Grpc::new(channel).max_decoding_message_size(LARGEST);
            client.ready().await.map_err(|error| Status::from_error(error.into()))?;
            let request = marked(Request::new(requests), token.as_deref());
            client.streaming(request, PathAndQuery::from_static(path), ProstCodec::<Q, A>::default()).await
        };
        let answer = opened.await;
        outstanding.answered = true;
        Ok((answer.map_err(failed)?.into_inner(), number))
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("to", &self.config).finish_non_exhaustive()
    }
}

async fn make(endpoint: Endpoint, config: Arc<Config>) -> Result<(Channel, Option<String>)> {
    let connected = within(CONNECTING, Box::pin(endpoint.connect_with_connector(Connector))).await;
    let late = || Error::new(ErrorKind::Unavailable, format!("{config} did not answer within {CONNECTING:?}"));
    let channel = connected.ok_or_else(late)?.map_err(|error| of_connecting(&error, &config))?;
    let Some((name, password)) = &config.user else { return Ok((channel, None)) };
    let request = AuthenticateRequest { name: name.clone(), password: password.clone() };
    let asked = Box::pin(send::<_, AuthenticateResponse>(&channel, AUTHENTICATE, request, None));
    let answer = within(CONNECTING, asked).await.ok_or_else(late)?;
    let token = answer.map_err(|status| of_request(&status, &config).into_error())?.token;
    Ok((channel, Some(token)))
}

/// Asks for a member that has a leader, and proves who we are.
fn marked<T>(mut request: Request<T>, token: Option<&str>) -> Request<T> {
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token.and_then(|token| MetadataValue::try_from(token).ok()) {
        request.metadata_mut().insert("token", token);
    }
    request
}

/// Sends one request on this connection.
pub(super) async fn send<Q, A>(
    channel: &Channel,
    path: &'static str,
    request: Q,
    token: Option<&str>,
) -> std::result::Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut client = Grpc::new(channel.clone()).max_decoding_message_size(LARGEST);
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let (request, codec) = (marked(Request::new(request), token), ProstCodec::<Q, A>::default());
    Ok(client.unary(request, PathAndQuery::from_static(path), codec).await?.into_inner())
}

fn endpoint(config: &Config, member: usize) -> Result<Endpoint> {
    let refused = |error: tonic::transport::Error| {
        Error::new(ErrorKind::Config, format!("{config} cannot be used: {error}")).with_source(error)
    };
    let endpoint = Endpoint::from_shared(config.endpoint(member))
        .map_err(refused)?
        .connect_timeout(CONNECTING)
        .http2_keep_alive_interval(PINGS.0)
        .keep_alive_timeout(PINGS.1)
        .keep_alive_while_idle(true);
    let Some(tls) = &config.tls else { return Ok(endpoint) };
    let read = |file: &std::path::Path| {
        crate::runtime::read_file(file)
            .map(|(_, bytes)| bytes)
            .map_err(|error| Error::new(ErrorKind::Config, format!("cannot read {}: {error}", file.display())).with_source(error))
    };
    let mut with = ClientTlsConfig::new();
    match &tls.ca {
        Some(file) => with = with.ca_certificate(Certificate::from_pem(read(file)?)),
        None => return Err(Error::new(ErrorKind::Config, "etcds:// needs the certificate of the authority: ?ca=FILE")),
    }
    if let Some((certificate, key)) = &tls.identity {
        with = with.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    endpoint.tls_config(with).map_err(refused)
}
