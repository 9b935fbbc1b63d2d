#!lua name=serpent_1

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
    sums = sums or { cells = {}, unsure = -1, turn = 0, count = 0, offset = 0 },
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
    local count = cell.size - cell.held - #cell.told
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
      record.ends = record.ends + record.linger
      redis.call('ZADD', self.ends, record.ends, first)
      for name, held in pairs(record.cells) do
        self:count(name, held, -1)
        held.slots = 0
        for _, demand in pairs(held.demands) do demand[2] = 0 end
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
  local available = math.max(window - cell.held, 0)
  cell.size = window
  self:forget_told(now, ask.name, gateway)
  local wanted = all > window
  local by_class = wanted and divide(window, ask.division, weights, reserves, demands) or demands
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
    slots = math.max(math.floor(exact + (window - all) / (gateways + 1) + NEARLY), demand)
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
  return { demands = kept, slots = slots, credit = credit, lacks = lacks, could = could }, { slots, wanted and 1 or 0, parts, window }
end

-- KEYS: gateways, sums, ends, and the beginning of denied:CELL.
-- ARGV: gateway, lease in microseconds, the ask as JSON; in tests also the time in microseconds.
-- The ask: seen, gateways, linger (microseconds), and by cell: name, window, adjusted, division, holds, finished (done,
-- failed, microseconds of service), and by class: name, weight, reserve, running, waiting. The answer: its number, the
-- number of gateways, whether this one leads, and by cell: slots, whether others want some, the part of each class's
-- requests in thousandths, all slots of the cell, and what Site:lead says of the others.
local function ask(keys, argv)
  local gateway, lease, its = argv[1], tonumber(argv[2]), cjson.decode(argv[3])
  local time = redis.call('TIME')
  local now = tonumber(argv[4]) or time[1] * 1000000 + time[2]
  local site = open(keys)
  local sums = site.sums
  now = site:clock(now)
  if site.fresh or (sums.last and now - sums.last > lease) then sums.unsure = now + lease end
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
  if its.seen > number and holds then sums.unsure = math.max(sums.unsure, now + lease) end
  number = math.max(number, its.seen) + 1
  local gateways, unsure = sums.count, now < sums.unsure
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
    if unsure then most = math.max(cell.holds, math.floor(window / most_gateways), 1) end
    local held, grant = site:grant(now, gateway, cell, window, had, periods, most, gateways, slow)
    grant[5] = others
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

redis.register_function('serpent_1_spend', spend)
redis.register_function('serpent_1_ask', ask)
redis.register_function('serpent_1_leave', leave)
