//! `lockkeeper doctor`: the self-test of connecting, in full; success only if locks are safe there.

use clap::Args;
use lockkeeper::Client;
use lockkeeper::backend::{Finding, Verdict};

use super::print;
use crate::exit::{Code, Failure};
use crate::store::StoreOption;
use crate::view::aligned;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    store: StoreOption,
}

pub(crate) async fn run(arguments: Arguments) -> Result<u8, Failure> {
    let chosen = arguments.store.find()?;
    let (url, found) = Client::examine(&chosen.url).await?;
    // Between processes it excludes nobody, and each lockkeeper is a process.
    let private = url.starts_with("memory:");
    let is_bad = |finding: &Finding| private || matches!(finding.verdict, Verdict::Unfit(_));
    let row = |mark: &str, about: &str, says: &str| [mark, about, says].map(str::to_owned);
    let mut rows = vec![row("ok", "store", &url), row("ok", "named by", &chosen.by)];
    rows.extend(found.iter().map(|finding| {
        let mark = match finding.verdict {
            _ if is_bad(finding) => "BAD",
            Verdict::Doubtful => "note",
            Verdict::Fine | Verdict::Unfit(_) => "ok",
        };
        row(mark, finding.about, &finding.says)
    }));
    print(aligned(&rows))?;
    if found.iter().any(is_bad) {
        return Err(Failure::new(Code::Unavailable, "locks are not safe there; see what is marked BAD"));
    }
    Ok(0)
}
