-- Calls are stored in format 2 from here on, which programs that know the schema's first version only cannot read.
select 2;
