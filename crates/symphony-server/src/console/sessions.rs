//! Who is signed in: a cookie names a session of this process, which holds the token. What a browser keeps is worth nothing
//! elsewhere, and nothing after sign-out.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::http::{HeaderMap, header};
use sha2::{Digest as _, Sha256};

use crate::api::random_digits;
use crate::bounds::{
    SESSION_IDLE_MAX, SESSION_LASTS, SESSIONS_MAX, SESSIONS_OF_A_TOKEN_MAX, SIGN_IN_LINK_LASTS,
    SIGN_IN_LINKS_MAX,
};

/// A session: the token behind it, and what a form of it must carry.
pub(crate) struct Session {
    pub(super) secret: String,
    /// In every form, so that no other page can send one.
    pub(super) form_token: String,
    began: Instant,
    /// Signed out, or displaced by others.
    ended: AtomicBool,
    seen: Mutex<Instant>,
    /// What the next page says first.
    notice: Mutex<Option<String>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn notify(&self, text: String) {
        *self.notice.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    pub(super) fn take_notice(&self) -> Option<String> {
        self.notice.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn last_seen(&self) -> Instant {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it does, for whoever has a page open: that is looking at it.
    pub(super) fn goes_on(&self) -> bool {
        let now = Instant::now();
        let goes_on = !self.is_over(now);
        if goes_on {
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = now;
        }
        goes_on
    }

    /// Nobody sees anything with it any more.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn is_over(&self, now: Instant) -> bool {
        self.ended.load(Ordering::Relaxed)
            || now.duration_since(self.began) >= SESSION_LASTS
            || now.duration_since(self.last_seen()) >= SESSION_IDLE_MAX
    }
}

/// All sessions of a process.
#[derive(Debug)]
pub(crate) struct Sessions {
    cookie: String,
    /// Where TLS is spoken, here or by the proxy in front.
    secure: bool,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// By the hash of what the cookie holds.
    sessions: HashMap<[u8; 32], Arc<Session>>,
    /// Sign-ins that were printed and not used yet: the token, and since when.
    links: HashMap<[u8; 32], Link>,
}

impl Held {
    /// A stream of it ends too.
    fn remove(&mut self, key: &[u8; 32]) {
        if let Some(session) = self.sessions.remove(key) {
            session.end();
        }
    }

    /// For one more of these; the one least used goes.
    fn make_room(&mut self, most: usize, of: impl Fn(&Session) -> bool) {
        let held = || self.sessions.iter().filter(|(_, session)| of(session));
        if held().count() < most {
            return;
        }
        let stalest = held().min_by_key(|(_, session)| session.last_seen());
        if let Some(stalest) = stalest.map(|(key, _)| *key) {
            self.remove(&stalest);
        }
    }
}

struct Link {
    secret: String,
    since: Instant,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Sessions {
    /// Of a listener on this port: cookies know no ports, and two servers of one machine must not sign each other out.
    pub(crate) fn new(port: u16, secure: bool) -> Self {
        let prefix = if secure { "__Host-" } else { "" };
        let cookie = format!("{prefix}symphony_session_{port}");
        Self { cookie, secure, held: Mutex::default() }
    }

    /// A sign-in for one use; what to put into the address.
    pub(crate) fn new_link(&self, secret: &str) -> io::Result<String> {
        // 128 bits, so that the address fits into a line.
        let code: String = random_digits()?.chars().take(32).collect();
        let link = Link { secret: secret.to_owned(), since: Instant::now() };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.links.len() >= SIGN_IN_LINKS_MAX {
            held.links.clear();
        }
        held.links.insert(hash(&code), link);
        Ok(code)
    }

    /// The token of such a sign-in, once.
    pub(super) fn use_link(&self, code: &str) -> Option<String> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let link = held.links.remove(&hash(code))?;
        (link.since.elapsed() < SIGN_IN_LINK_LASTS).then_some(link.secret)
    }

    /// Begin a session in the place of the one that the browser presents; the cookie's header.
    pub(super) fn begin(&self, secret: String, headers: &HeaderMap) -> io::Result<String> {
        let (id, form_token) = (random_digits()?, random_digits()?);
        let now = Instant::now();
        let session = Session {
            secret,
            form_token,
            began: now,
            ended: AtomicBool::new(false),
            seen: Mutex::new(now),
            notice: Mutex::new(None),
        };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = self.presented(headers) {
            held.remove(&hash(before));
        }
        held.sessions.retain(|_, session| !session.is_over(now));
        // Of the same token first: one token's sign-ins must not sign others out.
        held.make_room(SESSIONS_OF_A_TOKEN_MAX, |held| held.secret == session.secret);
        held.make_room(SESSIONS_MAX, |_| true);
        held.sessions.insert(hash(&id), Arc::new(session));
        Ok(self.cookie(&id, SESSION_LASTS.as_secs()))
    }

    /// The session that a request's cookie names.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<Arc<Session>> {
        let key = hash(self.presented(headers)?);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let session = held.sessions.get(&key)?.clone();
        let now = Instant::now();
        if session.is_over(now) {
            held.remove(&key);
            return None;
        }
        *session.seen.lock().unwrap_or_else(PoisonError::into_inner) = now;
        Some(session)
    }

    /// End the session; the header that clears the cookie.
    pub(super) fn end(&self, headers: &HeaderMap) -> String {
        if let Some(id) = self.presented(headers) {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.remove(&hash(id));
        }
        self.cookie("", 0)
    }

    fn cookie(&self, id: &str, seconds: u64) -> String {
        let secure = if self.secure { "; Secure" } else { "" };
        format!(
            "{}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}",
            self.cookie
        )
    }

    /// What the cookie holds. Two of that name are a trick of somebody who could set one of them.
    fn presented<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut found = cookies
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .filter(|(name, _)| *name == self.cookie)
            .map(|(_, id)| id);
        match (found.next(), found.next()) {
            (Some(id), None) => Some(id),
            _ => None,
        }
    }
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use std::time::Duration;

    fn cookies(set: &str) -> HeaderMap {
        let pair = set.split(';').next().unwrap_or_default();
        let mut headers = HeaderMap::new();
        headers.insert(
            header::COOKIE,
            HeaderValue::from_str(pair).unwrap_or_else(|_| HeaderValue::from_static("")),
        );
        headers
    }

    fn rewind(sessions: &Sessions, began: Duration, seen: Duration) {
        let mut held = sessions.held.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        for session in held.sessions.values_mut() {
            let moved = Session {
                secret: session.secret.clone(),
                form_token: session.form_token.clone(),
                began: now.checked_sub(began).unwrap_or(now),
                ended: AtomicBool::new(false),
                seen: Mutex::new(now.checked_sub(seen).unwrap_or(now)),
                notice: Mutex::new(None),
            };
            *session = Arc::new(moved);
        }
    }

    #[test]
    fn a_session_ends_by_age_by_rest_and_by_sign_out() -> io::Result<()> {
        let sessions = Sessions::new(9464, false);
        let begin = || sessions.begin("symphony_x".to_owned(), &HeaderMap::new());
        let headers = cookies(&begin()?);
        assert!(sessions.of(&headers).is_some());
        rewind(&sessions, SESSION_LASTS, Duration::ZERO);
        assert!(sessions.of(&headers).is_none(), "too old");
        let headers = cookies(&begin()?);
        rewind(&sessions, SESSION_IDLE_MAX, SESSION_IDLE_MAX);
        assert!(sessions.of(&headers).is_none(), "not used for too long");
        let headers = cookies(&begin()?);
        let watched = sessions.of(&headers).filter(|session| session.goes_on());
        assert!(sessions.end(&headers).contains("Max-Age=0"));
        assert!(sessions.of(&headers).is_none(), "signed out");
        assert!(watched.is_some_and(|session| !session.goes_on()), "and so has what it watched");
        Ok(())
    }

    #[test]
    fn there_are_never_more_sessions_than_the_bound_and_the_one_least_used_goes() -> io::Result<()>
    {
        let sessions = Sessions::new(9464, false);
        let begin = |token: String| sessions.begin(token, &HeaderMap::new());
        let first = cookies(&begin("a".to_owned())?);
        rewind(&sessions, Duration::from_secs(9), Duration::from_secs(9));
        let mut last = HeaderMap::new();
        for number in 0..SESSIONS_MAX {
            last = cookies(&begin(number.to_string())?);
        }
        assert!(sessions.of(&first).is_none());
        assert!(sessions.of(&last).is_some());
        Ok(())
    }

    #[test]
    fn one_token_signs_out_only_itself_however_often_it_signs_in() -> io::Result<()> {
        let sessions = Sessions::new(9464, false);
        let begin = |token: &str| sessions.begin(token.to_owned(), &HeaderMap::new());
        let other = cookies(&begin("b")?);
        let first = cookies(&begin("a")?);
        rewind(&sessions, Duration::from_secs(9), Duration::from_secs(9));
        let mut last = HeaderMap::new();
        for _ in 0..SESSIONS_OF_A_TOKEN_MAX {
            last = cookies(&begin("a")?);
        }
        assert!(sessions.of(&first).is_none(), "its own oldest went");
        assert!(sessions.of(&last).is_some() && sessions.of(&other).is_some());
        Ok(())
    }

    #[test]
    fn whoever_signs_in_again_leaves_no_session_behind() -> io::Result<()> {
        let sessions = Sessions::new(9464, false);
        let before = cookies(&sessions.begin("a".to_owned(), &HeaderMap::new())?);
        let after = cookies(&sessions.begin("b".to_owned(), &before)?);
        assert!(sessions.of(&before).is_none());
        assert!(sessions.of(&after).is_some());
        Ok(())
    }

    #[test]
    fn a_cookie_is_secure_with_tls_and_two_of_its_name_are_none() -> io::Result<()> {
        let none = HeaderMap::new();
        let plain = Sessions::new(9464, false).begin("a".to_owned(), &none)?;
        assert!(
            plain.contains("HttpOnly; SameSite=Strict") && !plain.contains("Secure"),
            "{plain}"
        );
        let sessions = Sessions::new(443, true);
        let secure = sessions.begin("a".to_owned(), &none)?;
        assert!(secure.starts_with("__Host-") && secure.ends_with("; Secure"), "{secure}");
        let mut headers = cookies(&secure);
        let again = headers.get(header::COOKIE).cloned();
        headers.append(header::COOKIE, again.unwrap_or_else(|| HeaderValue::from_static("")));
        assert!(sessions.of(&headers).is_none());
        Ok(())
    }

    #[test]
    fn a_printed_sign_in_is_good_once() -> io::Result<()> {
        let sessions = Sessions::new(9464, false);
        let code = sessions.new_link("symphony_x")?;
        assert_eq!(sessions.use_link("0"), None);
        assert_eq!(sessions.use_link(&code).as_deref(), Some("symphony_x"));
        assert_eq!(sessions.use_link(&code), None);
        Ok(())
    }
}
