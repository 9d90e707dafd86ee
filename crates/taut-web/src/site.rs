use std::borrow::Cow;
use std::time::SystemTime;

use hyper::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HOST, HeaderMap, HeaderValue, LAST_MODIFIED, LOCATION, RANGE,
    TRANSFER_ENCODING, VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode, Version};
use taut_time::Duration;

use crate::conditional::{Validators, Verdict};
use crate::encoding::{Accepted, CODINGS, Coding};
use crate::listing::{self, Line};
use crate::media::media_type;
use crate::range::Range;
use crate::tree::{Miss, OpenFile, Resource, Tree};
use crate::{Body, Hosts, Name, Refusal, template};

/// How a directory is served.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether a directory without index is answered with a list of its entries.
    pub listing: bool,
    /// How long clients may keep files without asking again; `None` has them ask every time (`no-cache`).
    pub max_age: Option<Duration>,
    /// For which hosts it answers.
    pub hosts: Hosts,
}

/// A directory and how it is served: from a request's head to an answer. Reads files' data never,
/// and their directories on the thread of the caller.
#[derive(Debug)]
pub struct Site {
    tree: Tree,
    options: Options,
}

/// Why something was refused, for the log; carried by the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note(pub(crate) &'static str);

type Answer = Response<Body>;

/// What is told to whoever asks for a host that is not ours: nothing of what they sent.
const MISDIRECTED: &str = "421 Misdirected Request\n\nThis server answers for localhost, for addresses, and for names that it was told: \
                           taut web --host NAME\n";

impl Site {
    /// A site of a directory.
    pub const fn new(tree: Tree, options: Options) -> Self {
        Self { tree, options }
    }

    /// What is refused whatever it names; `has_content` tells whether something comes after the
    /// head. The connection has to be closed when the answer says so.
    pub(crate) fn refuse(head: &Parts, has_content: bool) -> Option<Answer> {
        let closing = |mut answer: Answer| {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            Some(answer)
        };
        if head.headers.contains_key(TRANSFER_ENCODING) {
            return closing(error(StatusCode::BAD_REQUEST, "a request with Transfer-Encoding"));
        }
        if !is_host_valid(head) {
            return closing(error(StatusCode::BAD_REQUEST, "not one valid Host"));
        }
        if has_content {
            return closing(error(StatusCode::PAYLOAD_TOO_LARGE, "a request with content"));
        }
        if head.method != Method::GET && head.method != Method::HEAD {
            let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD are all there is");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Some(answer);
        }
        None
    }

    /// The answer to a request without content. `now` is when it came.
    pub fn respond(&self, head: &Parts, now: SystemTime) -> Response<Body> {
        let mut answer = Self::refuse(head, false).unwrap_or_else(|| self.answer(head, now));
        answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // For HEAD too, whose answers have the fields of GET's and no content (RFC 9110, section 9.3.2).
        if !answer.headers().contains_key(CONTENT_LENGTH) && answer.status() != StatusCode::NOT_MODIFIED {
            let length = hyper::body::Body::size_hint(answer.body()).exact().unwrap_or(0);
            answer.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        if head.method == Method::HEAD { answer.map(|_| Body::bytes("")) } else { answer }
    }

    fn answer(&self, head: &Parts, now: SystemTime) -> Answer {
        // A host in the request's line stands before that of the field (RFC 9112, section 3.2.2).
        let field = head.headers.get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()));
        let absolute = head.uri.authority().filter(|_| head.uri.scheme().is_some());
        let in_line = absolute.map(|authority| Cow::from(authority.as_str()));
        if field.iter().chain(&in_line).any(|host| !self.options.hosts.know(host)) {
            let mut answer = error(StatusCode::MISDIRECTED_REQUEST, "a host that it was not told (--host)");
            *answer.body_mut() = Body::bytes(MISDIRECTED);
            return answer;
        }
        let name = match Name::parse(head.uri.path()) {
            Ok(name) => name,
            Err(Refusal::Malformed(why)) => return error(StatusCode::BAD_REQUEST, why),
            Err(Refusal::Hidden) => return error(StatusCode::NOT_FOUND, "a name that begins with a dot"),
            Err(Refusal::TooLong) => return error(StatusCode::URI_TOO_LONG, "a name that is too long"),
        };
        let found = if name.is_directory() { self.index(head, &name, now) } else { self.page(head, &name, now) };
        found.unwrap_or_else(|miss| missed(&miss))
    }

    /// A file, or the page made of a template; a directory is told to be one.
    fn page(&self, head: &Parts, name: &Name, now: SystemTime) -> Result<Answer, Miss> {
        let last = name.segments().last().map(|last| String::from_utf8_lossy(last)).unwrap_or_default();
        if template::is_source(&last) {
            return Err(Miss::Absent);
        }
        match self.tree.find(&name.path()) {
            Ok(Resource::File(file)) => self.file(head, name, file, now),
            Ok(Resource::Directory) => Ok(redirect(head, name)),
            Err(Miss::Absent) => self.template(name, &last, now),
            Err(miss) => Err(miss),
        }
    }

    fn template(&self, name: &Name, last: &str, now: SystemTime) -> Result<Answer, Miss> {
        let source = template::source(last).ok_or(Miss::Absent)?;
        let Resource::File(file) = self.tree.find(&sibling(name, &source))? else { return Err(Miss::Absent) };
        if file.length > template::LONGEST {
            return Ok(error(StatusCode::INTERNAL_SERVER_ERROR, "a template of more than 1 MiB"));
        }
        let page = template::render(&file.contents()?, now);
        let mut answer = Response::new(Body::bytes(page));
        let fields = answer.headers_mut();
        fields.insert(CONTENT_TYPE, value(media_type(last.as_bytes())));
        // Each is a page of its own.
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.insert(ACCEPT_RANGES, HeaderValue::from_static("none"));
        Ok(answer)
    }

    fn index(&self, head: &Parts, name: &Name, now: SystemTime) -> Result<Answer, Miss> {
        match self.tree.find(&name.path())? {
            Resource::File(_) => return Err(Miss::Absent),
            Resource::Directory => {}
        }
        match self.page(head, &name.join("index.html"), now) {
            Err(Miss::Absent) if self.options.listing => self.listing(name),
            answer => answer,
        }
    }

    fn listing(&self, name: &Name) -> Result<Answer, Miss> {
        let names = self.tree.entries(&name.path(), listing::MOST + 1)?;
        let is_cut = names.len() > listing::MOST;
        let lines = names.into_iter().filter_map(|entry| self.line(name, entry)).collect();
        let path: String = name.segments().iter().map(|part| format!("{}/", String::from_utf8_lossy(part))).collect();
        let mut answer = Response::new(Body::bytes(listing::render(&format!("/{path}"), lines, is_cut)));
        let fields = answer.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        fields.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
        Ok(answer)
    }

    /// An entry as it is asked for; none for what is not served.
    fn line(&self, directory: &Name, entry: Vec<u8>) -> Option<Line> {
        let own = [directory.path().as_slice(), b"/", &entry].concat();
        if entry.first() == Some(&b'.') || entry.iter().any(u8::is_ascii_control) {
            return None;
        }
        match self.tree.find(&own).ok()? {
            Resource::Directory => Some(Line { name: entry, is_directory: true, length: None }),
            Resource::File(file) => match template::page(&entry) {
                Some(page) => Some(Line { name: page, is_directory: false, length: None }),
                None => Some(Line { name: entry, is_directory: false, length: Some(file.length) }),
            },
        }
    }

    fn file(&self, head: &Parts, name: &Name, plain: OpenFile, now: SystemTime) -> Result<Answer, Miss> {
        let media = media_type(&name.path());
        let chosen = self.choose(&head.headers, name, plain)?;
        let Some(Chosen { file, coding, varies }) = chosen else {
            return Ok(error(StatusCode::NOT_ACCEPTABLE, "no coding that the client accepts"));
        };
        let validators = Validators::of(&file, coding.map_or("", |coding| coding.ending), now);
        let verdict = validators.check(&head.headers);
        let range = match verdict {
            Verdict::Proceed if head.method == Method::GET && validators.allows_range(&head.headers) => {
                let mut fields = head.headers.get_all(RANGE).iter();
                // Two fields are none.
                let field = fields.next().filter(|_| fields.next().is_none());
                Range::of(field, file.length)
            }
            _ => Range::Whole,
        };
        let length = file.length;
        let mut answer = match (verdict, range) {
            (Verdict::Failed, _) => return Ok(error(StatusCode::PRECONDITION_FAILED, "a precondition")),
            (Verdict::NotModified, _) => status(StatusCode::NOT_MODIFIED, Body::bytes("")),
            (_, Range::Unsatisfiable) => {
                let mut answer = error(StatusCode::RANGE_NOT_SATISFIABLE, "a range that is not there");
                answer.headers_mut().insert(CONTENT_RANGE, value(format!("bytes */{length}")));
                return Ok(answer);
            }
            (_, Range::Whole) => Response::new(Body::file(file, 0, length)),
            (_, Range::Part { first, last }) => {
                let mut answer = status(StatusCode::PARTIAL_CONTENT, Body::file(file, first, last - first + 1));
                answer.headers_mut().insert(CONTENT_RANGE, value(format!("bytes {first}-{last}/{length}")));
                answer
            }
        };
        let is_answered = verdict == Verdict::Proceed;
        let fields = answer.headers_mut();
        if is_answered {
            fields.insert(CONTENT_TYPE, value(media));
            fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
            if let Some(coding) = coding {
                fields.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name));
            }
        }
        // These 304 has too (RFC 9110, section 15.4.5).
        fields.insert(ETAG, value(validators.to_string()));
        if let Some(modified) = validators.modified {
            fields.insert(LAST_MODIFIED, value(httpdate::fmt_http_date(modified)));
        }
        if varies {
            fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
        }
        fields.insert(CACHE_CONTROL, self.cache_control());
        Ok(answer)
    }

    /// The file as it is or as one of those that were compressed beforehand; `None` when the client
    /// accepts none of them.
    fn choose(&self, fields: &HeaderMap, name: &Name, plain: OpenFile) -> Result<Option<Chosen>, Miss> {
        let accepted = Accepted::of(fields);
        let mut best: Option<(u16, OpenFile, Coding)> = None;
        let mut varies = false;
        for coding in CODINGS {
            let path = [name.path().as_slice(), coding.ending.as_bytes()].concat();
            // What can't be opened is not there, and one older than its file was made of another.
            let Ok(Resource::File(file)) = self.tree.find(&path) else { continue };
            if file.modified < plain.modified {
                continue;
            }
            varies = true;
            let weight = accepted.weight(coding);
            if weight > best.as_ref().map_or(0, |(best, _, _)| *best) {
                best = Some((weight, file, coding));
            }
        }
        let identity = accepted.identity();
        Ok(match best {
            Some((weight, file, coding)) if weight >= identity => Some(Chosen { file, coding: Some(coding), varies }),
            _ if identity > 0 => Some(Chosen { file: plain, coding: None, varies }),
            _ => None,
        })
    }

    fn cache_control(&self) -> HeaderValue {
        match self.options.max_age {
            Some(age) => value(format!("max-age={}", age.as_secs())),
            None => HeaderValue::from_static("no-cache"),
        }
    }
}

/// What of a file is sent.
struct Chosen {
    file: OpenFile,
    coding: Option<Coding>,
    /// Whether another client might get another coding.
    varies: bool,
}

/// The path of another entry of the same directory.
fn sibling(name: &Name, entry: &str) -> Vec<u8> {
    let mut segments = name.segments().to_vec();
    if let Some(last) = segments.last_mut() {
        *last = entry.as_bytes().to_vec();
    }
    segments.join(&b'/')
}

/// HTTP/1.1 wants one (RFC 9112, section 3.2), which is a host and perhaps a port.
fn is_host_valid(head: &Parts) -> bool {
    let mut hosts = head.headers.get_all(HOST).iter();
    let is_plain = |host: &HeaderValue| {
        host.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+,;=".contains(byte))
    };
    match (hosts.next(), hosts.next()) {
        (None, _) => head.version <= Version::HTTP_10,
        (Some(host), None) => is_plain(host),
        (Some(_), Some(_)) => false,
    }
}

/// To the same with a slash after it. Its path never begins with two slashes, which would be another host.
fn redirect(head: &Parts, name: &Name) -> Answer {
    let path: String = name.segments().iter().map(|segment| format!("/{}", listing::encode(segment))).collect();
    let query = head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut answer = status(StatusCode::MOVED_PERMANENTLY, Body::bytes(""));
    answer.headers_mut().insert(LOCATION, value(format!("{path}/{query}")));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer
}

fn missed(miss: &Miss) -> Answer {
    match miss {
        Miss::Absent => error(StatusCode::NOT_FOUND, "not there"),
        Miss::Outside => error(StatusCode::NOT_FOUND, "a symbolic link out of the directory"),
        Miss::Special => error(StatusCode::NOT_FOUND, "neither file nor directory"),
        Miss::Denied => error(StatusCode::FORBIDDEN, "no permission"),
        Miss::Host(_) => error(StatusCode::SERVICE_UNAVAILABLE, "the host has too little of something"),
    }
}

/// An answer that tells its status and nothing of what lies behind it; the reason is for the log.
fn error(code: StatusCode, why: &'static str) -> Answer {
    let reason = code.canonical_reason().unwrap_or_default();
    let mut answer = status(code, Body::bytes(format!("{} {reason}\n", code.as_u16())));
    let fields = answer.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer.extensions_mut().insert(Note(why));
    answer
}

fn status(code: StatusCode, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    answer
}

/// A field's value of our own making; one that can't be sent is left empty.
fn value<'a>(text: impl Into<Cow<'a, str>>) -> HeaderValue {
    HeaderValue::from_str(&text.into()).unwrap_or(HeaderValue::from_static(""))
}
