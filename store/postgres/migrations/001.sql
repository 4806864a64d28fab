-- A session's record, and by what lists are filtered and ordered.
create table capture_proxy.sessions (
    no         bigint generated always as identity primary key,
    id         text collate "C" not null unique,
    instance   text not null,
    status     text not null,
    grp        text not null,
    run        text not null,
    env        text not null,
    created_s  bigint not null,
    created_ns int not null,
    record     bytea not null
);
create index sessions_by_creation on capture_proxy.sessions (created_s, created_ns, id);
create index sessions_by_group on capture_proxy.sessions (grp, created_s, created_ns, id) where grp <> '';
create index sessions_by_run on capture_proxy.sessions (run, created_s, created_ns, id) where run <> '';
create index sessions_by_env on capture_proxy.sessions (env, created_s, created_ns, id) where env <> '';
create index sessions_running on capture_proxy.sessions (created_s, created_ns, id) where status = 'running';

-- What the proxies agree on about a session. It changes with every call, so it stands apart from the record.
create table capture_proxy.admission (
    session   bigint primary key references capture_proxy.sessions (no) on delete cascade,
    calls     int not null default 0,
    turns     int not null default 0,
    forwarded int not null default 0,
    max_calls bigint,
    ended     boolean not null default false,
    ending    text, -- the proxy that is ending it
    cancelled text,
    touched   timestamptz not null default now()
) with (fillfactor = 50);

-- Calls, in the encoding of package store: the payloads of one dictionary (dict) are read in the order of seq.
create table capture_proxy.calls (
    session   bigint not null references capture_proxy.sessions (no) on delete cascade,
    number    int not null,
    dict      bigint not null,
    seq       int not null,
    body_hash text not null,
    node      boolean not null, -- it became a turn, or several
    outcome   text not null,
    detail    text not null,
    payload   bytea not null,
    primary key (session, number),
    unique (session, dict, seq)
);
create index calls_by_body on capture_proxy.calls (session, body_hash);

-- Calls under way, and the proxies that hold them.
create table capture_proxy.inflight (
    session   bigint not null references capture_proxy.sessions (no) on delete cascade,
    number    int not null,
    proxy     text not null,
    token     bigint not null,
    body_hash text not null,
    reserved  boolean not null,
    gone      boolean not null default false,
    primary key (session, number)
);
create index inflight_by_proxy on capture_proxy.inflight (proxy);

create table capture_proxy.proxies (
    id   text primary key,
    seen timestamptz not null
);

create table capture_proxy.policy (
    one     boolean primary key default true check (one),
    version bigint not null
);

-- A proxy that has not been heard of for 10 seconds is dead, unless nobody could be heard: the server was down.
create function capture_proxy.alive(p text) returns boolean language sql stable as $$
    select exists (
        select from capture_proxy.proxies
        where id = p and (seen > now() - interval '10 s' or pg_postmaster_start_time() > now() - interval '10 s'))
$$;

create function capture_proxy.tell(kind text, sender text, sid text, body text) returns void language sql as $$
    select pg_notify('capture_proxy', json_build_object('k', kind, 'f', sender, 's', sid, 't', body)::text)
$$;

-- One call is admitted. The row in admission is what concurrent ones wait for. token makes asking again harmless.
create function capture_proxy.admit(sid text, inst text, sender text, tok bigint, hash text, repeats boolean,
    out state text, out number int, out retry_of int, out reserved boolean, out turns int, out in_flight int)
language plpgsql as $$
declare
    s bigint;
    a capture_proxy.admission;
    mine capture_proxy.inflight;
    attempt int;
    failed boolean;
begin
    select no into s from capture_proxy.sessions where id = sid and instance = inst;
    select * into a from capture_proxy.admission where session = s for update;
    if not found then
        state := 'missing';
        return;
    end if;
    select * into mine from capture_proxy.inflight i where i.session = s and i.proxy = sender and i.token = tok;
    if found then
        number := mine.number;
        reserved := mine.reserved;
    elsif a.ended or a.ending is not null then
        state := 'ending';
        return;
    else
        number := a.calls + 1;
        reserved := a.max_calls is null or a.forwarded < a.max_calls;
        update capture_proxy.admission set calls = a.calls + 1, forwarded = a.forwarded + reserved::int, touched = clock_timestamp() where session = s;
        insert into capture_proxy.inflight values (s, number, sender, tok, hash, reserved);
    end if;
    -- An equal body alone proves nothing: the caller says so, or the last attempt did not end as a turn.
    select x.n, x.failed into attempt, failed from (
        select c.number as n, not c.node as failed from capture_proxy.calls c where c.session = s and c.body_hash = hash
        union all
        select i.number, i.gone from capture_proxy.inflight i where i.session = s and i.body_hash = hash
    ) x where x.n < admit.number order by x.n desc limit 1;
    retry_of := case when attempt is not null and (repeats or failed) then attempt else 0 end;
    select count(*) into in_flight from capture_proxy.inflight i where i.session = s;
    turns := a.turns;
    state := 'admitted';
end
$$;

-- A call has left its session, recorded or not.
create function capture_proxy.depart(s bigint, sid text, sender text, num int, forwards boolean, more_turns int) returns void
language plpgsql as $$
declare
    had boolean;
    is_ending boolean;
begin
    delete from capture_proxy.inflight where session = s and number = num returning reserved into had;
    update capture_proxy.admission set touched = clock_timestamp(), turns = turns + more_turns, calls = greatest(calls, num),
        forwarded = forwarded - (coalesce(had, false) and not forwards)::int
        where session = s returning ending is not null into is_ending;
    if is_ending and not exists (select from capture_proxy.inflight where session = s) then
        perform capture_proxy.tell('idle', sender, sid, '');
    end if;
end
$$;

-- A batch of calls is stored, all or none. For each: 1 stored, 0 no such session. A number that another payload has taken
-- fails the batch: what follows in the same dictionary may refer to what this one brings.
create function capture_proxy.append(sender text, sids text[], insts text[], numbers int[], dicts bigint[], seqs int[], hashes text[],
    nodes boolean[], outcomes text[], more_turns int[], forwards boolean[], details text[], payloads bytea[]) returns int[]
language plpgsql as $$
declare
    done int[] := '{}';
    s bigint;
    had record;
begin
    for i in 1 .. coalesce(array_length(sids, 1), 0) loop
        select no into s from capture_proxy.sessions where id = sids[i] and (insts[i] = '' or instance = '' or instance = insts[i]) for key share;
        if not found then
            done := done || 0;
            continue;
        end if;
        insert into capture_proxy.calls values (s, numbers[i], dicts[i], seqs[i], hashes[i], nodes[i], outcomes[i], details[i], payloads[i])
            on conflict (session, number) do nothing;
        if found then
            perform capture_proxy.depart(s, sids[i], sender, numbers[i], forwards[i], more_turns[i]);
        else
            select dict, seq into had from capture_proxy.calls where session = s and number = numbers[i];
            if had.dict is distinct from dicts[i] or had.seq is distinct from seqs[i] then
                raise exception 'taken' using errcode = 'CP001', detail = i::text;
            end if;
        end if;
        done := done || 1;
    end loop;
    return done;
end
$$;
