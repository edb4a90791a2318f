//! One course from start to end: the servers, the teams, and heats by turns.

use std::path::PathBuf;
use std::time::Duration;

use crate::contestants::{self, Programs};
use crate::courses::{Course, Pace, Place, Shows};
use crate::queues::Queues;
use crate::results::{Heat, Results, ServerSays};
use crate::server::{Flavour, Server};
use crate::sql::SqlServer;
use crate::team::Team;
use crate::{commands, machine};

/// Runs a course and adds what came of it.
pub(crate) fn run(course: &Course, pace: &Pace, programs: &Programs, results: &mut Results) {
    if course.place == Place::Commands {
        return commands::run(course, pace, programs, results);
    }
    if let Some(why) = Queues::missing(course.place) {
        println!("    {why}");
        results.trouble.extend(course.who.iter().map(|id| ((course.id, *id), why.clone())));
        return;
    }
    if !course.begins_anew() {
        return Field::new(course, pace).race(&course.who, rounds(course, pace), programs, results);
    }
    let repeats = if course.shows == Shows::Keeping { 1 } else { pace.repeats };
    for _ in 0..repeats {
        for id in &course.who {
            Field::new(course, pace).race(&[*id], 1, programs, results);
        }
    }
}

/// How many rounds a course has. Servers that write each request to a disk allow a heat a few hundred cycles, so its median needs more heats.
fn rounds(course: &Course, pace: &Pace) -> usize {
    let few = matches!(course.place, Place::ZooKeeper { .. } | Place::Etcd) && pace.repeats == Pace::FULL.repeats;
    if few { 3 * pace.repeats } else { pace.repeats }
}

/// Where a course is run.
struct Field<'a> {
    course: &'a Course,
    pace: &'a Pace,
    servers: Vec<Server>,
    frozen: usize,
    sql: Option<SqlServer>,
    queues: Option<Queues>,
    folder: PathBuf,
}

impl<'a> Field<'a> {
    fn new(course: &'a Course, pace: &'a Pace) -> Self {
        let (servers, frozen) = if let Place::Redis { servers, frozen } = course.place { (servers, frozen) } else { (0, 0) };
        let servers: Vec<Server> = (0..servers).map(|_| Server::start(Flavour::Redis)).collect();
        for server in &servers {
            machine::pin(server.pid());
        }
        let sql = if let Place::Sql(database) = course.place { Some(SqlServer::start(database)) } else { None };
        let queues = Queues::start(course.place);
        let folder = contestants::target().join("bench").join(course.id);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder below the target directory");
        Self { course, pace, servers, frozen, sql, queues, folder }
    }

    fn race(&self, who: &[&'static str], repeats: usize, programs: &Programs, results: &mut Results) {
        results.servers.extend(self.queues.as_ref().map(|queues| (self.course.id, queues.version())));
        let mut teams = Vec::new();
        for &id in who {
            println!("    {id} gets ready");
            match self.start(id, programs) {
                Ok(team) => teams.push((id, Some(team))),
                Err(why) => self.fail(id, why, results),
            }
        }
        let (well, frozen) = self.servers.split_at(self.servers.len() - self.frozen);
        frozen.iter().for_each(Server::freeze);
        for repeat in 0..repeats {
            println!("    round {} of {repeats}", repeat + 1);
            // The first contestant is the last one in the next round.
            let count = teams.len().max(1);
            for turn in 0..teams.len() {
                let (id, team) = &mut teams[(turn + repeat) % count];
                let Some(running) = team else { continue };
                let (before, cpu) = (self.says(well), running.cpu());
                match running.run(self.limit()) {
                    Ok(reports) => {
                        let mut heat = Heat::new(reports, running.cpu() - cpu, before, self.says(well));
                        if self.course.shows == Shows::Sales {
                            heat.facts.insert("counted".to_owned(), counted(&self.servers[0], id));
                        }
                        results.add(self.course.id, id, heat);
                    }
                    Err(why) => {
                        *team = None;
                        self.fail(id, why, results);
                    }
                }
            }
        }
        frozen.iter().for_each(Server::thaw);
    }

    fn start(&self, id: &'static str, programs: &Programs) -> Result<Team, String> {
        let contestant = contestants::find(id);
        let program = programs.of(contestant);
        let command = program.command.clone()?;
        let java = command[0] == "java";
        let warm = if self.course.begins_anew() {
            0.0
        } else if java {
            self.pace.java_warm
        } else {
            self.pace.warm
        };
        let mut words: Vec<String> = self.course.words.iter().map(|&word| word.to_owned()).collect();
        words.extend(contestant.words.iter().map(|&word| word.to_owned()));
        words.extend([
            format!("url={}", self.url()),
            format!("name={id}"),
            format!("seconds={}", self.seconds()),
            format!("warm={warm}"),
            format!("folder={}", self.folder.display()),
        ]);
        let log = self.folder.join(format!("{id}.log"));
        // A contestant that keeps many locks acquires them first.
        let patience = if self.course.shows == Shows::Keeping { 3.0 } else { 1.0 };
        let limit = Duration::from_secs_f64(3.0 * warm + patience * self.pace.starting);
        Team::start(&command, &words, self.course.processes, &log, limit)
    }

    fn url(&self) -> String {
        if let Some(queues) = &self.queues {
            return queues.url();
        }
        match self.course.place {
            Place::Memory | Place::Commands | Place::ZooKeeper { .. } | Place::Etcd => "memory:".to_owned(),
            Place::Sqlite => format!("sqlite:{}", self.folder.join("locks.db").display()),
            Place::Sql(_) => self.sql.as_ref().map(SqlServer::url).unwrap_or_default(),
            Place::Redis { .. } => {
                let urls: Vec<String> = self.servers.iter().map(|server| format!("redis://127.0.0.1:{}", server.port)).collect();
                urls.join(",")
            }
        }
    }

    fn says(&self, well: &[Server]) -> ServerSays {
        match (&self.sql, &self.queues) {
            (Some(sql), _) => sql.says(),
            (None, Some(queues)) => queues.says(),
            (None, None) => says(well),
        }
    }

    fn seconds(&self) -> f64 {
        if self.course.shows == Shows::Keeping { self.pace.keeping } else { self.pace.seconds }
    }

    /// Long enough for those who poll, and for a crowd; who takes longer hangs.
    fn limit(&self) -> Duration {
        Duration::from_secs_f64(3.0 * self.seconds() + self.pace.patience + self.course.patience)
    }

    fn fail(&self, id: &'static str, why: String, results: &mut Results) {
        println!("    {id}: {why}");
        results.trouble.insert((self.course.id, id), why);
    }
}

/// What the servers that are well say, together.
fn says(servers: &[Server]) -> ServerSays {
    let mut all = ServerSays::default();
    for server in servers {
        let told = info(server).unwrap_or_default();
        all.cpu += told.cpu;
        all.requests += told.requests;
        all.keys += told.keys;
    }
    all
}

/// What the counter says that a contestant's lock protects.
fn counted(server: &Server, id: &str) -> f64 {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port));
    let read = client.and_then(|client| redis::cmd("GET").arg(format!("{id}:sold")).query(&mut client.get_connection()?));
    read.unwrap_or(f64::NAN)
}

/// Commands that scripts do not call, so that counting them counts what clients sent. A script is one of them, whatever it calls.
const ASKED: [&str; 10] =
    ["eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "ping"];

fn info(server: &Server) -> redis::RedisResult<ServerSays> {
    let mut connection = redis::Client::open(format!("redis://127.0.0.1:{}", server.port))?.get_connection()?;
    let text: String = redis::cmd("INFO").arg("everything").query(&mut connection)?;
    let number = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok()).unwrap_or(0.0);
    let calls = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|rest| rest.split(',').next()?.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let keys: f64 = redis::cmd("DBSIZE").query(&mut connection)?;
    Ok(ServerSays {
        cpu: number("used_cpu_user:") + number("used_cpu_sys:"),
        requests: ASKED.iter().map(|name| calls(name)).sum(),
        keys,
        written: 0.0,
    })
}
