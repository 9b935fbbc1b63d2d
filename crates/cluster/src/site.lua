#!lua name=serpent_2

-- The windows of a site, divided among its gateways. Called by each gateway every 100 ms. The same decisions, with the
-- same numbers in the same order, are made by scheduler::lease::Ledger, which explains them; a test compares both.
--
-- Keys of a site, all with its name in braces, so that a cluster of stores keeps them in one place:
--   gateways     hash: gateway -> its record, packed
--   sums         the sums over all gateways, packed
--   ends         sorted set: gateway -> end of its lease in microseconds, or of what was in flight after that
--   denied:CELL  sorted set: gateway -> turn of those that got less than their part
--   denied-short:CELL  the same for those that got their part and could use more

local MOST_CREDIT = 2
local CREDIT_US = 100000
local NEARLY = 1e-6
local MANY = 32
local TOLD_US = 1000
local LISTEN_US = 300000
local REPAY_US, LEAST_FOR_SLOT, MOST_FACTOR = 400000, 8, 2
local WANTED_GAP_US, WANTED_LEAST_US, WANTED_MOST_US = 50, 2000, 50000
-- A site without gateways is forgotten after that.
local KEEP_MS = 3600000

local function fill(amount, weights, caps)
  local given, open, left = {}, {}, amount
  for i = 1, #caps do
    given[i] = 0
    open[i] = caps[i] > 0 and weights[i] > 0
  end
  while true do
    local total = 0
    for i = 1, #caps do
      if open[i] then total = total + weights[i] end
    end
    if total <= 0 then return given end
    local level, closed = left / total, false
    for i = 1, #caps do
      if open[i] and caps[i] <= level * weights[i] then
        given[i] = caps[i]
        left = left - caps[i]
        open[i] = false
        closed = true
      end
    end
    if not closed then
      for i = 1, #caps do
        if open[i] then given[i] = level * weights[i] end
      end
      return given
    end
  end
end

local function divide(window, division, weights, reserves, demands)
  local slots = {}
  if division == 'strict' then
    local left = window
    for i = 1, #demands do
      slots[i] = math.min(demands[i], left)
      left = left - slots[i]
    end
    return slots
  end
  if division == 'weighted' then return fill(window, weights, demands) end
  if division == 'demand' then
    local by_demand = {}
    for i = 1, #demands do by_demand[i] = weights[i] * demands[i] end
    return fill(window, by_demand, demands)
  end
  local all = 0
  for i = 1, #weights do all = all + weights[i] end
  local left = window
  for i = 1, #demands do
    local entitled = math.max(window * weights[i] / all, reserves[i])
    slots[i] = math.min(demands[i], entitled)
    left = left - slots[i]
  end
  for i = 1, #demands do
    if slots[i] < reserves[i] then left = left - (reserves[i] - slots[i]) end
  end
  if left > 0 then
    local more = {}
    for i = 1, #demands do more[i] = demands[i] - slots[i] end
    local lent = fill(left, weights, more)
    for i = 1, #demands do slots[i] = slots[i] + lent[i] end
  end
  return slots
end

-- The state of a site while a call lasts.
local Site = {}
Site.__index = Site

local function open(keys)
  local packed = redis.call('GET', keys[2])
  local sums = packed and cmsgpack.unpack(packed)
  -- A store that is short of memory may have dropped one key and kept others.
  if not sums then redis.call('DEL', keys[1], keys[3]) end
  return setmetatable({
    gateways = keys[1], sums_key = keys[2], ends = keys[3], denied = keys[4],
    sums = sums or { cells = {}, turn = 0, count = 0, offset = 0 },
    fresh = not sums,
    channel = string.match(keys[1], '^(.*):gateways$'),
  }, Site)
end

-- The time of the store, which never goes back.
function Site:clock(now)
  now = now + self.sums.offset
  if self.sums.last and now < self.sums.last then
    self.sums.offset = self.sums.offset + (self.sums.last - now)
    now = self.sums.last
  end
  return now
end

function Site:close()
  local kept = self.sums.kept
  if not kept or self.sums.last - kept > KEEP_MS * 100 then
    self.sums.kept = self.sums.last
    for _, key in ipairs({ self.gateways, self.ends }) do redis.call('PEXPIRE', key, KEEP_MS) end
  end
  redis.call('SET', self.sums_key, cmsgpack.pack(self.sums), 'PX', KEEP_MS)
end

function Site:cell(name)
  local cell = self.sums.cells[name]
  if not cell then
    cell = { demands = {}, running = 0, held = 0, idle = 0, finished = { 0, 0, 0 }, told = {}, size = 0 }
    self.sums.cells[name] = cell
  end
  return cell
end

function Site:record(gateway)
  local packed = redis.call('HGET', self.gateways, gateway)
  return packed and cmsgpack.unpack(packed)
end

-- A record's part in the sums of a cell: `sign` 1 adds it, -1 takes it away.
function Site:count(name, held, sign)
  local cell, running = self:cell(name), 0
  for class, demand in pairs(held.demands) do
    cell.demands[class] = (cell.demands[class] or 0) + sign * (demand[1] + demand[2])
    running = running + demand[1]
  end
  cell.running = cell.running + sign * running
  cell.held = cell.held + sign * math.max(held.slots, running)
  cell.idle = cell.idle + sign * math.max(held.slots - running, 0)
  if held.kept then cell.keepers = (cell.keepers or 0) + sign end
end

-- Slots that are kept for gateways that may be cut off, each of which goes on at its equal part.
function Site:kept(name)
  local cell = self:cell(name)
  if (cell.keepers or 0) == 0 then return 0 end
  return math.min(cell.keepers * math.max(math.floor(cell.size / math.max(self.sums.count, 1)), 1), cell.size)
end

-- The gateways that got less than their part of a cell, and those that could use more than that, by turn.
function Site:denied_key(name)
  return self.denied .. ':' .. name
end

function Site:short_key(name)
  return self.denied .. '-short:' .. name
end

-- Tells as many gateways as slots are free, beside those that were told already.
function Site:tell(now, name)
  local cell = self:cell(name)
  for _, key in ipairs({ self:denied_key(name), self:short_key(name) }) do
    local count = cell.size - self:kept(name) - cell.held - #cell.told
    if count <= 0 then return end
    local first = redis.call('ZPOPMIN', key, count)
    for i = 1, #first, 2 do
      table.insert(cell.told, { first[i], now })
      redis.call('PUBLISH', self.channel .. ':to:' .. first[i], 'free')
    end
  end
end

-- Forgets that this gateway was told, and what is long ago.
function Site:forget_told(now, name, gateway)
  local cell, told = self:cell(name), {}
  for _, it in ipairs(cell.told) do
    if it[1] ~= gateway and now - it[2] < TOLD_US then table.insert(told, it) end
  end
  cell.told = told
end

-- Puts a gateway into a queue, where it keeps its turn, or takes it out.
function Site:queue(key, gateway, is_in)
  if is_in then
    self.sums.turn = self.sums.turn + 1
    if redis.call('ZADD', key, 'NX', self.sums.turn, gateway) == 1 then redis.call('PEXPIRE', key, KEEP_MS) end
  else
    redis.call('ZREM', key, gateway)
  end
end

-- A gateway no longer waits for slots of a cell.
function Site:leave(now, name, gateway)
  self:queue(self:denied_key(name), gateway, false)
  self:queue(self:short_key(name), gateway, false)
  self:forget_told(now, name, gateway)
end

-- Whether another gateway got less than its part of a cell.
function Site:others_denied(name, gateway)
  local count = redis.call('ZCARD', self:denied_key(name))
  return count > 1 or count == 1 and not redis.call('ZSCORE', self:denied_key(name), gateway)
end

function Site:forget(now, gateway, record)
  redis.call('ZREM', self.ends, gateway)
  redis.call('HDEL', self.gateways, gateway)
  self.sums.count = self.sums.count - 1
  if self.sums.leader == gateway then self.sums.leader = nil end
  for name, held in pairs(record.cells) do
    self:count(name, held, -1)
    self:leave(now, name, gateway)
    self:tell(now, name)
  end
end

-- Ends leases, and what was in flight in those that ended before.
function Site:expire(now, asks)
  while true do
    local first = redis.call('ZRANGEBYSCORE', self.ends, '-inf', now, 'LIMIT', 0, 1)[1]
    if not first then return end
    local record = self:record(first)
    if first == asks or not record then
      -- It is here again, and says itself what it holds.
      redis.call('ZREM', self.ends, first)
    elseif record.lapsed then
      self:forget(now, first, record)
    else
      record.lapsed = true
      if self.sums.leader == first then self.sums.leader = nil end
      -- A gateway that is gone has no connection any more on which it could hear this.
      local kept = record.keep and redis.call('PUBLISH', self.channel .. ':to:' .. first, 'free') > 0
      record.ends = record.ends + (kept and record.keep or record.linger)
      redis.call('ZADD', self.ends, record.ends, first)
      for name, held in pairs(record.cells) do
        self:count(name, held, -1)
        held.slots, held.kept = 0, kept
        for _, demand in pairs(held.demands) do
          demand[2] = 0
          if kept then demand[1] = 0 end
        end
        self:count(name, held, 1)
      end
      redis.call('HSET', self.gateways, first, cmsgpack.pack(record))
      for name in pairs(record.cells) do
        self:leave(now, name, first)
        self:tell(now, name)
      end
    end
  end
end

-- What the gateway that leads is told of the others, and what it says: running, waiting, done, failed, service time.
function Site:lead(leads, ask)
  local cell, finished = self:cell(ask.name), ask.finished
  if ask.adjusted and (leads or not cell.window) then cell.window = math.max(ask.window, 1) end
  if not ask.adjusted then cell.window = nil end
  if not leads then
    for i = 1, 3 do cell.finished[i] = cell.finished[i] + finished[i] end
    return { 0, 0, 0, 0, 0 }
  end
  local all = 0
  for _, demand in pairs(cell.demands) do all = all + demand end
  local others = { cell.running, all - cell.running, cell.finished[1], cell.finished[2], cell.finished[3] }
  cell.finished = { 0, 0, 0 }
  return others
end

-- Counts requests that have started against the weights of the classes that want more than they get. What each weight is to
-- be multiplied by, in thousandths.
function Site:settle(now, ask, window, by_class, demands)
  local cell, all, compared, weights = self:cell(ask.name), 0, 0, 0
  for i, class in ipairs(ask.classes) do
    all = all + class[6]
    if by_class[i] < demands[i] then
      compared = compared + class[6]
      weights = weights + class[2]
    end
  end
  -- Gateways of an earlier version share the sums, and keep no account.
  cell.owed, cell.recent = cell.owed or {}, cell.recent or 0
  cell.recent = cell.recent / (1 + (now - (cell.settled or now)) / REPAY_US) + all
  cell.settled = now
  local span, factors = math.max(cell.recent, LEAST_FOR_SLOT * window), {}
  for i, class in ipairs(ask.classes) do
    if by_class[i] < demands[i] then
      local part = class[2] / weights
      local owed = (cell.owed[class[1]] or 0) + compared * part - class[6]
      owed = math.max(math.min(owed, span), -span)
      cell.owed[class[1]] = owed
      factors[i] = math.floor(math.max(math.min(1 + owed / (part * span), MOST_FACTOR), 1 / MOST_FACTOR) * 1000 + 0.5)
    else
      cell.owed[class[1]] = 0
      factors[i] = 1000
    end
  end
  return factors
end

function Site:grant(now, gateway, ask, window, had, periods, most, gateways, slow)
  local cell = self:cell(ask.name)
  local demands, weights, reserves, all, demand = {}, {}, {}, 0, 0
  for i, class in ipairs(ask.classes) do
    local its = class[4] + class[5]
    demands[i] = (cell.demands[class[1]] or 0) + its
    weights[i], reserves[i] = class[2], class[3]
    all = all + demands[i]
    demand = demand + its
  end
  cell.size = window
  local divided = window - self:kept(ask.name)
  local available = math.max(divided - cell.held, 0)
  self:forget_told(now, ask.name, gateway)
  local wanted = all > divided
  local by_class = wanted and divide(divided, ask.division, weights, reserves, demands) or demands
  local factors = ask.division == 'weighted' and self:settle(now, ask, window, by_class, demands) or {}
  local exact, parts = 0, {}
  for i, class in ipairs(ask.classes) do
    local part = demands[i] > 0 and (class[4] + class[5]) / demands[i] or 1 / gateways
    exact = exact + by_class[i] * part
    parts[i] = math.floor(part * 1000 + 0.5)
  end
  local credit = 0
  if had and wanted then
    credit = math.max(math.min(had.credit + (exact - had.slots) * periods, MOST_CREDIT), -MOST_CREDIT)
  end
  local claim = exact + credit + NEARLY
  -- A slot that it has stays until it is one behind, so that slots do not move with each ask.
  local whole = math.max(math.floor(claim), math.min(math.floor(claim + 1), had and had.slots or 0), 0)
  local slots
  if wanted then
    -- What is free beyond that is lent to the gateway that asks, half of it at a time, unless others lack some of
    -- their part.
    local beyond = 0
    if available > whole and not self:others_denied(ask.name, gateway) then
      beyond = math.ceil((available - whole) / 2)
    end
    slots = math.min(whole + beyond, demand)
  else
    -- One part of the rest stays with the store, for the gateway that needs it first.
    slots = math.max(math.floor(exact + (divided - all) / (gateways + 1) + NEARLY), demand)
  end
  -- Its requests may soon be twice as many, and it will not ask in time.
  if slow then slots = math.max(slots, math.min(math.floor(window / gateways), demand * 2)) end
  slots = math.min(slots, available, most)
  -- Who was in no queue has not to be taken out of one.
  local lacks, could = slots < demand and slots < whole, slots < demand and slots >= whole
  if lacks or had and had.lacks then self:queue(self:denied_key(ask.name), gateway, lacks) end
  if could or had and had.could then self:queue(self:short_key(ask.name), gateway, could) end
  if slots < demand then
    local every = math.max(math.min(WANTED_GAP_US * gateways, WANTED_MOST_US), WANTED_LEAST_US)
    local due = not self.sums.called or now - self.sums.called >= every
    -- Requests have moved to this gateway, and others still have the slots that they had for them.
    local moved = 4 * (whole - slots) >= math.max(window, 12)
    if due and (cell.idle > 0 or not cell.called or moved) then
      self.sums.called, cell.called = now, true
      redis.call('PUBLISH', self.channel .. ':all', 'wanted')
    end
  elseif not wanted then
    cell.called = false
  end
  local kept = {}
  for _, class in ipairs(ask.classes) do kept[class[1]] = { class[4], class[5] } end
  return { demands = kept, slots = slots, credit = credit, lacks = lacks, could = could }, { slots, wanted and 1 or 0, parts, factors, window }
end

-- KEYS: gateways, sums, ends, and the beginning of denied:CELL.
-- ARGV: gateway, lease in microseconds, the ask as JSON; in tests also the time in microseconds.
-- The ask: seen, gateways, linger and keep (microseconds), store (the number of this process, 0 if it is not known), and by cell: name, window, adjusted, division, holds, finished (done,
-- failed, microseconds of service), and by class: name, weight, reserve, running, waiting, started. The answer: its number,
-- the number of gateways, whether this one leads, and by cell: slots, whether others want some, the part of each class's
-- requests and what its weight is to be multiplied by, both in thousandths, all slots of the cell, and what Site:lead says
-- of the others.
local function ask(keys, argv)
  local gateway, lease, its = argv[1], tonumber(argv[2]), cjson.decode(argv[3])
  local time = redis.call('TIME')
  local now = tonumber(argv[4]) or time[1] * 1000000 + time[2]
  local site = open(keys)
  local sums = site.sums
  now = site:clock(now)
  -- Another process than the one that wrote this memory has perhaps not all of it.
  local moved = false
  if its.store and its.store ~= 0 then
    moved = sums.store and sums.store ~= its.store
    sums.store = its.store
  end
  if site.fresh or moved or (sums.last and now - sums.last > lease) then
    sums.doubt = { now, now + lease, not moved and now + LISTEN_US }
  end
  sums.last = now
  site:expire(now, gateway)
  local old = site:record(gateway)
  if old then
    for name, held in pairs(old.cells) do site:count(name, held, -1) end
  else
    sums.count = sums.count + 1
  end
  local holds = false
  for _, cell in ipairs(its.cells) do holds = holds or cell.holds > 0 end
  local number = old and old.number or 0
  -- Since when leases may have been forgotten, when they have ended, and until when it is heard whether there were any.
  local doubt = sums.doubt
  if holds and its.seen > number then
    doubt[2], doubt[3] = math.max(doubt[2], now + lease), false
  elseif holds and old and old.asked < doubt[1] then
    doubt[3] = false
  end
  number = math.max(number, its.seen) + 1
  local gateways, unsure = sums.count, now < math.min(doubt[3] or doubt[2], doubt[2])
  local most_gateways = unsure and math.max(gateways, its.gateways) or gateways
  if not sums.leader then sums.leader = gateway end
  local leads = sums.leader == gateway
  local periods = old and (now - old.asked) / CREDIT_US
  local slow = gateways >= MANY and old and now - old.asked >= its.linger / 4
  local cells, grants = {}, {}
  for i, cell in ipairs(its.cells) do
    local had = old and old.cells[cell.name]
    local others = site:lead(leads, cell)
    local window = site:cell(cell.name).window or math.max(cell.window, 1)
    local most = math.huge
    if unsure then
      most = cell.holds
      if doubt[3] then most = math.max(most, math.floor(window / most_gateways), 1) end
    end
    local held, grant = site:grant(now, gateway, cell, window, had, periods, most, gateways, slow)
    grant[6] = others
    if had and had.kept then
      -- The ask may have been on its way for long. Its answer arrives nowhere then.
      local free = math.max(window - site:cell(cell.name).held, 0)
      held.slots = math.max(held.slots, math.min(math.max(math.floor(window / gateways), 1), free))
    end
    site:count(cell.name, held, 1)
    site:tell(now, cell.name)
    cells[cell.name], grants[i] = held, grant
  end
  -- Cells that the gateway no longer has.
  if old then
    for name, held in pairs(old.cells) do
      if not cells[name] then
        site:leave(now, name, gateway)
        site:tell(now, name)
      end
    end
  end
  redis.call('ZADD', site.ends, now + lease, gateway)
  redis.call('HSET', site.gateways, gateway, cmsgpack.pack({
    number = number, asked = now, ends = now + lease, lapsed = false, linger = its.linger, cells = cells,
    keep = its.keep > 0 and its.keep or nil,
  }))
  site:close()
  -- Those that have not asked yet since the store forgot them are still there.
  return { number, most_gateways, leads and 1 or 0, grants }
end

-- The same keys. ARGV: a gateway that ends, and has no request under way.
local function leave(keys, argv)
  local site = open(keys)
  local record = site:record(argv[1])
  if record then
    local time = redis.call('TIME')
    site:forget(site:clock(time[1] * 1000000 + time[2]), argv[1], record)
    site:close()
  end
  return 'OK'
end

-- Requests that a gateway has let in under limits that it has together with others. KEYS: the beginning of spent:LIMIT.
-- ARGV: the gateway, and for each limit and client: its name, requests since the gateway's last call, and for how many
-- milliseconds it is to be remembered. The answer: for each the requests of other gateways since that call.
local function spend(keys, argv)
  local others = {}
  for i = 2, #argv, 3 do
    local key, requests = keys[1] .. ':' .. argv[i], tonumber(argv[i + 1])
    local total = redis.call('HINCRBY', key, 'total', requests)
    local known = redis.call('HGET', key, argv[1]) or 0
    redis.call('HSET', key, argv[1], total)
    redis.call('PEXPIRE', key, argv[i + 2])
    others[#others + 1] = total - requests - known
  end
  return others
end

-- Requests that are under way at a gateway, of the clients that have most of them. KEYS: under:LIMIT. ARGV: the gateway,
-- for how many milliseconds its word counts, and client and count, one after the other. The answer: the same of all
-- other gateways together.
local function under_way(keys, argv)
  local time, here, sums, answer = redis.call('TIME'), {}, {}, {}
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  for i = 3, #argv do here[#here + 1] = argv[i] end
  local all = redis.call('HGETALL', keys[1])
  for i = 1, #all, 2 do
    if all[i] ~= argv[1] then
      local its = cmsgpack.unpack(all[i + 1])
      if its[1] <= now then
        redis.call('HDEL', keys[1], all[i])
      else
        for j = 1, #its[2], 2 do sums[its[2][j]] = (sums[its[2][j]] or 0) + tonumber(its[2][j + 1]) end
      end
    end
  end
  if #here == 0 then
    redis.call('HDEL', keys[1], argv[1])
  else
    redis.call('HSET', keys[1], argv[1], cmsgpack.pack({ now + argv[2], here }))
    redis.call('PEXPIRE', keys[1], argv[2])
  end
  for client, count in pairs(sums) do
    answer[#answer + 1] = client
    answer[#answer + 1] = count
  end
  return answer
end

-- Values that all gateways have in common. Numbers of the order of microseconds since 1970 are exact, and are not made
-- texts. KEYS: shared, packed. ARGV: the gateway; the epoch and version that it knows; then, four each: `set` (it is so
-- now), `first` (unless it has changed since the stamp) or `keep` (in case it was forgotten) with name, stamp and value, or
-- `held` (so for HELD_US if it is not said again) with a name. The answer: epoch, version, time, whether the values follow,
-- the values (name, stamp, value), and what is held.
local MOST_VALUES, HELD_US, KEEP_VALUES_MS = 10000, 5000000, 30 * 24 * 3600000
local function share(keys, argv)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local packed = redis.call('GET', keys[1])
  local state = packed and cmsgpack.unpack(packed) or { epoch = now, version = 0, count = 0, values = {}, held = {} }
  local gateway, told, changed = argv[1], false, false
  for _, by in pairs(state.held) do
    if by[gateway] then by[gateway] = -by[gateway] end
  end
  for i = 4, #argv, 4 do
    local kind, name, stamp, value = argv[i], argv[i + 1], tonumber(argv[i + 2]), argv[i + 3]
    if kind == 'held' then
      local by = state.held[name] or {}
      if not by[gateway] then changed = true end
      by[gateway] = now + HELD_US
      state.held[name] = by
    else
      told = true
      local old, new = state.values[name], nil
      local had = old and old[1] or 0
      if kind == 'set' or kind == 'first' and had == stamp then new = math.max(now, had + 1) end
      if kind == 'keep' and stamp > had then new = stamp end
      if new and (old or state.count < MOST_VALUES) then
        if not old then state.count = state.count + 1 end
        state.values[name] = { new, value }
        -- Not a count, which comes again after a replica behind has taken over.
        state.version, changed = math.max(now, state.version + 1), true
      end
    end
  end
  local held = {}
  for name, by in pairs(state.held) do
    for other, ends in pairs(by) do
      -- A negative one was not said again.
      if ends < now then
        by[other] = nil
        if ends < 0 then changed = true end
      end
    end
    if next(by) then held[#held + 1] = name else state.held[name] = nil end
  end
  redis.call('SET', keys[1], cmsgpack.pack(state), 'PX', KEEP_VALUES_MS)
  if changed then redis.call('PUBLISH', keys[1], 'changed') end
  local values, same = {}, tonumber(argv[2]) == state.epoch and tonumber(argv[3]) == state.version and not told
  if not same then
    for name, value in pairs(state.values) do
      values[#values + 1] = name
      values[#values + 1] = value[1]
      values[#values + 1] = value[2]
    end
  end
  table.sort(held)
  return { state.epoch, state.version, now, same and 0 or 1, values, held }
end

-- What gateways say of themselves. KEYS: seen. ARGV: the gateway, what it says (JSON; empty: it ends), for how many
-- milliseconds that counts, and 1 if it wants to know what the others say. The answer: gateway, milliseconds since it said
-- so, what it says, and so on.
local function see(keys, argv)
  local time, all = redis.call('TIME'), {}
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if argv[2] == '' then
    redis.call('HDEL', keys[1], argv[1])
  else
    redis.call('HSET', keys[1], argv[1], cmsgpack.pack({ now, argv[2] }))
  end
  redis.call('PEXPIRE', keys[1], KEEP_MS)
  if argv[4] == '1' then
    local seen = redis.call('HGETALL', keys[1])
    for i = 1, #seen, 2 do
      local it = cmsgpack.unpack(seen[i + 1])
      if now - it[1] > tonumber(argv[3]) then
        redis.call('HDEL', keys[1], seen[i])
      else
        for _, value in ipairs({ seen[i], math.max(now - it[1], 0), it[2] }) do all[#all + 1] = value end
      end
    end
  end
  return all
end

redis.register_function('serpent_2_under_way', under_way)
redis.register_function('serpent_2_share', share)
redis.register_function('serpent_2_see', see)
redis.register_function('serpent_2_spend', spend)
redis.register_function('serpent_2_ask', ask)
redis.register_function('serpent_2_leave', leave)
